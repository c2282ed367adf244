#include "io/recycled_memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

using namespace weightstore;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

void fill(MutableBytes bytes, std::byte value) { std::fill(bytes.begin(), bytes.end(), value); }

// Allocates and drops. Returns the address.
const std::byte* used_once(std::size_t size) {
  const SharedMutableBytes memory = io::allocate_recycled(size);
  CHECK_EQ(memory.bytes.size(), size);
  return memory.bytes.data();
}

// Pushes out all that is kept.
void forget_all() { used_once(io::kMostSpare); }

}  // namespace

TEST(a_dropped_result_makes_room_for_the_next) {
  forget_all();
  const std::byte* first = used_once(8 * kMiB);
  const SharedMutableBytes next = io::allocate_recycled(8 * kMiB - 5);
  CHECK_EQ(static_cast<const void*>(next.bytes.data()), static_cast<const void*>(first));
  // The one before is still held.
  const SharedMutableBytes other = io::allocate_recycled(8 * kMiB);
  CHECK(other.bytes.data() != first);
  fill(next.bytes, std::byte{2});
  fill(other.bytes, std::byte{3});
  CHECK(next.bytes.front() == std::byte{2} && next.bytes.back() == std::byte{2});
}

TEST(much_longer_memory_is_not_used) {
  forget_all();
  const std::byte* large = used_once(32 * kMiB);
  const SharedMutableBytes small = io::allocate_recycled(8 * kMiB);
  CHECK(small.bytes.data() < large || small.bytes.data() >= large + 32 * kMiB);
}

TEST(no_more_than_the_limit_is_kept) {
  forget_all();
  // One piece of the limit pushes out the others, a larger one is not kept.
  used_once(16 * kMiB);
  const std::byte* most = used_once(io::kMostSpare);
  CHECK_EQ(static_cast<const void*>(used_once(io::kMostSpare)), static_cast<const void*>(most));
  {
    std::vector<SharedMutableBytes> many;
    for (int i = 0; i < 20; ++i) many.push_back(io::allocate_recycled(3 * kMiB));
  }
  used_once(io::kMostSpare + 1);
  CHECK(io::allocate_recycled(0).bytes.empty());
  CHECK_EQ(io::allocate_recycled(1).bytes.size(), 1u);
}

TEST(many_threads) {
  std::atomic<int> wrong = 0;
  const auto work = [&](int number) {
    for (int i = 0; i < 30; ++i) {
      const SharedMutableBytes memory = io::allocate_recycled(kMiB + static_cast<std::size_t>(i % 7) * 4096);
      fill(memory.bytes, static_cast<std::byte>(number));
      wrong += std::any_of(memory.bytes.begin(), memory.bytes.end(),
                           [&](std::byte byte) { return byte != static_cast<std::byte>(number); });
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, i);
  threads.clear();
  CHECK_EQ(wrong.load(), 0);
}

TEST(a_child_has_its_own) {
  used_once(4 * kMiB);
  const SharedMutableBytes held = io::allocate_recycled(4 * kMiB);
  fill(held.bytes, std::byte{7});
  const pid_t child = ::fork();
  if (child == 0) {
    used_once(4 * kMiB);
    fill(held.bytes, std::byte{8});
    ::_exit(0);
  }
  int status = -1;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  CHECK(held.bytes.back() == std::byte{7});
}

RUN_TESTS()
