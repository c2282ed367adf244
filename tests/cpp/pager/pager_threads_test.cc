// Many threads, a budget for a third of the tensors: exact accounts, one read a miss, and progress. A watchdog ends the
// program when nothing moves for too long. Under a sanitizer the numbers are smaller.

#include <cstdlib>
#include <random>
#include <thread>

#include "check.h"
#include "pager_sources.h"

using namespace weightstore;
using namespace pager_sources;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kAcquires = 200'000;
constexpr auto kTimeLimit = std::chrono::seconds(30);
#else
constexpr std::size_t kAcquires = 1'000'000;
constexpr auto kTimeLimit = std::chrono::seconds(10);
#endif
constexpr unsigned kThreads = 8;

namespace {

class Watchdog {
 public:
  Watchdog() : thread_([this](std::stop_token stop) { watch(stop); }) {}
  void step() { steps_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void watch(const std::stop_token& stop) {
    std::uint64_t last = ~std::uint64_t{0};
    auto moved = std::chrono::steady_clock::now();
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const auto now = std::chrono::steady_clock::now();
      const std::uint64_t steps = steps_.load(std::memory_order_relaxed);
      if (steps != last) {
        last = steps;
        moved = now;
      } else if (now - moved > kTimeLimit) {
        std::fprintf(stderr, "no progress after %llu steps\n", static_cast<unsigned long long>(steps));
        std::_Exit(2);
      }
    }
  }

  std::atomic<std::uint64_t> steps_{0};
  std::jthread thread_;
};

struct Pinned {
  Pinned(Pager& p, std::size_t i) : pager(p), slot(i) { pager.pin(slot); }
  ~Pinned() { pager.unpin(slot); }
  Pager& pager;
  std::size_t slot;
};

void check_accounts(const Model& model, std::size_t size) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < model.pager->table().size(); ++i) bytes += model.pager->is_resident(i) ? size : 0;
  CHECK_EQ(model.pager->resident_bytes(), bytes);
  CHECK_EQ(model.pager->resident_count() * size, bytes);
  const PagerStats stats = model.pager->stats();
  CHECK_EQ(stats.loads, model.source->reads() - stats.load_errors);
  CHECK_EQ(stats.loads - stats.evictions + stats.resurrected, model.pager->resident_count());
}

}  // namespace

TEST(a_million_acquires_by_eight_threads) {
  constexpr std::size_t kCount = 30;
  constexpr std::size_t kSize = 64;
  Model model(kCount, kSize, with_budget(kCount / 3 * kSize));
  Watchdog watchdog;
  std::atomic<std::uint64_t> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        ResidentTensor kept;
        for (std::size_t k = 0; k < kAcquires / kThreads; ++k) {
          // Squared, so that some are wanted more than others.
          const std::size_t r = random() % (kCount * kCount);
          const std::size_t i = r * r / (kCount * kCount * kCount);
          ResidentTensor tensor = model.pager->acquire(i % kCount);
          if (text_of(tensor) != data_of(tensor.slot(), kSize)) ++wrong;
          if (k % 16 == 0) kept = std::move(tensor);
          watchdog.step();
        }
      });
    }
  }
  CHECK_EQ(wrong.load(), 0u);
  check_accounts(model, kSize);
  const PagerStats stats = model.pager->stats();
  CHECK_EQ(stats.hits + stats.misses + stats.coalesced_waits + stats.resurrected, kAcquires / kThreads * kThreads);
  CHECK_EQ(stats.misses, stats.loads);
  CHECK_EQ(model.pager->resident_bytes(), kCount / 3 * kSize);
  CHECK_EQ(model.pager->live_bytes(), model.pager->resident_bytes());
}

TEST(everything_at_once) {
  constexpr std::size_t kCount = 24;
  constexpr std::size_t kSize = 80'000;  // large enough for the pool
  Model model(kCount, kSize, with_budget(kCount / 3 * kSize));
  std::atomic<unsigned> calls = 0;
  model.source->before_read = [&](std::uint64_t, std::size_t) {
    if (++calls % 17 == 0) throw Error(ErrorCode::kIo, "now and then").with_errno(EIO);
  };
  Watchdog watchdog;
  std::atomic<std::uint64_t> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        std::vector<SharedBytes> views;
        for (std::size_t k = 0; k < kAcquires / 400; ++k) {
          const std::size_t i = random() % kCount;
          try {
            switch (random() % 10) {
              case 0:
                model.pager->prefetch(Slots{i, (i + 1) % kCount, (i + 2) % kCount});
                break;
              case 1:
                model.pager->evict(i);
                break;
              case 2: {
                const Pinned pinned(*model.pager, i);
                model.pager->acquire((i + 3) % kCount);
                break;
              }
              case 3: {
                const Slots wanted = {i, (i + 5) % kCount, i, (i + 9) % kCount};
                const auto tensors = model.pager->acquire_many(wanted);
                for (const ResidentTensor& tensor : tensors) {
                  if (text_of(tensor) != data_of(tensor.slot(), kSize)) ++wrong;
                }
                break;
              }
              case 4:
                model.pager->set_budget((2 + random() % kCount) * kSize);
                break;
              case 5:
                views.clear();
                model.pager->clear();
                break;
              case 6:
                views.push_back(model.pager->acquire(i).share());
                if (views.size() > 4) views.erase(views.begin());
                break;
              default: {
                const ResidentTensor tensor = model.pager->acquire(i);
                if (text_of(tensor) != data_of(i, kSize)) ++wrong;
              }
            }
          } catch (const Error& error) {
            if (error.os_errno() != EIO) ++wrong;
          }
          watchdog.step();
        }
        for (const SharedBytes& view : views) {
          if (view.bytes.size() != kSize) ++wrong;
        }
      });
    }
  }
  model.pager->finish_prefetch();
  CHECK_EQ(wrong.load(), 0u);
  check_accounts(model, kSize);
  model.pager->clear();
  CHECK_EQ(model.pager->live_bytes(), 0u);
}

RUN_TESTS()
