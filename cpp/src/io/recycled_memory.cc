#include "io/recycled_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <utility>

#include "io/available_memory.h"
#include "io/huge_buffer.h"
#include "weightstore/error.h"

namespace weightstore::io {
namespace {

// The memory that is kept, the oldest first. Whoever finds it in use by another thread does without: nobody waits, and
// a child of fork() that was made in that moment finds it in use for ever.
class SpareMemory {
 public:
  // A piece with at least `size` bytes and not many more, or nothing.
  SharedMutableBytes take(std::size_t size) {
    const Turn turn(in_use_);
    if (!turn) return {};
    SharedMutableBytes* best = nullptr;
    for (SharedMutableBytes& spare : spares_) {
      const std::size_t length = spare.bytes.size();
      if (length < size || length - size > size / 4) continue;
      if (best == nullptr || length < best->bytes.size()) best = &spare;
    }
    if (best == nullptr) return {};
    SharedMutableBytes taken = std::exchange(*best, {});
    std::rotate(best, best + 1, spares_.end());
    return taken;
  }

  // Keeps `memory`, and lets go of the oldest pieces for which there is no longer room.
  void keep(SharedMutableBytes memory) {
    // A kernel that cannot do this would count the memory as used.
    if (::madvise(memory.bytes.data(), memory.bytes.size(), MADV_FREE) != 0) return;
    std::array<SharedMutableBytes, kMostPieces> dropped;  // freed after the turn
    const Turn turn(in_use_);
    if (!turn) return;
    std::size_t count = 0;
    std::size_t total = memory.bytes.size();
    for (const SharedMutableBytes& spare : spares_) {
      count += !spare.bytes.empty();
      total += spare.bytes.size();
    }
    for (std::size_t i = 0; count == kMostPieces || total > kMostSpare; ++i, --count) {
      total -= spares_.front().bytes.size();
      dropped[i] = std::exchange(spares_.front(), {});
      std::rotate(spares_.begin(), spares_.begin() + 1, spares_.end());
    }
    spares_[count] = std::move(memory);
  }

  void drop_all() {
    std::array<SharedMutableBytes, kMostPieces> dropped;
    const Turn turn(in_use_);
    if (turn) dropped.swap(spares_);
  }

 private:
  static constexpr std::size_t kMostPieces = 8;

  class Turn {
   public:
    explicit Turn(std::atomic_flag& in_use) : in_use_(in_use), has_(!in_use.test_and_set(std::memory_order_acquire)) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      if (has_) in_use_.clear(std::memory_order_release);
    }
    explicit operator bool() const { return has_; }

   private:
    std::atomic_flag& in_use_;
    const bool has_;
  };

  std::atomic_flag in_use_;
  std::array<SharedMutableBytes, kMostPieces> spares_;
};

// Never destroyed: results may be dropped while the process exits.
SpareMemory& spare_memory() {
  static auto* const spare = new SpareMemory;
  return *spare;
}

SharedMutableBytes allocate_new(std::size_t size) {
  try {
    require_memory(size);
  } catch (const Error&) {
    spare_memory().drop_all();  // it may be all that is missing
    require_memory(size);
  }
  SharedMutableBytes memory = allocate_bulk(size);
  memory.bytes = {memory.bytes.data(), mapped_bytes(size)};
  return memory;
}

}  // namespace

SharedMutableBytes allocate_recycled(std::size_t size) {
  SpareMemory& spare = spare_memory();
  const bool is_kept = size >= kLeastRecycled && size <= kMostSpare;
  SharedMutableBytes memory = is_kept ? spare.take(size) : SharedMutableBytes();
  if (memory.bytes.empty()) memory = allocate_new(size);
  if (!is_kept || memory.bytes.size() > kMostSpare) return {memory.bytes.first(size), memory.owner};
  std::byte* data = memory.bytes.data();
  return {{data, size}, std::shared_ptr<void>(data, [kept = std::move(memory)](void*) mutable {
            spare_memory().keep(std::move(kept));
          })};
}

}  // namespace weightstore::io
