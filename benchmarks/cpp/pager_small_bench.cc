// What the miss of a small tensor costs: its fixed part, how it depends on the number of tensors that cannot be
// evicted, and with 4 KiB from a file in the page cache.

#include <filesystem>
#include <fstream>
#include <iterator>

#include "benches.h"
#include "weightstore/pager.h"

namespace benches {

using namespace weightstore;

namespace {

// A source that has its bytes at once.
class InstantSource final : public ByteSource {
 public:
  explicit InstantSource(std::uint64_t size) : size_(size) {}
  std::uint64_t size() const override { return size_; }
  std::string name() const override { return "<instant>"; }
  void read_at(std::uint64_t, MutableBytes out) const override { out[0] = std::byte{1}; }

 private:
  const std::uint64_t size_;
};

std::vector<NamedEntry> entries_of(std::size_t count, std::size_t size) {
  std::vector<NamedEntry> entries;
  for (std::size_t i = 0; i < count; ++i) entries.push_back({"tensor." + std::to_string(i), {i * size, size}});
  return entries;
}

// A loop over the last `loose` + 1 tensors, of which `loose` fit; all others are in memory and stay there.
void bench_few_evictable(ankerl::nanobench::Bench& bench, std::size_t count, std::size_t loose, bool strict) {
  constexpr std::size_t kSize = 64;
  PagerOptions options;
  options.strict = strict;
  options.budget = strict ? kUnlimited : (count - 1) * kSize;
  options.direct = DirectReads::kNever;
  Pager pager(std::make_shared<InstantSource>(count * kSize), entries_of(count, kSize), options);
  const std::size_t first = count - 1 - loose;
  std::vector<ResidentTensor> held;
  for (std::size_t i = 0; i < first; ++i) {
    held.push_back(pager.acquire(i));
    if (!strict) {
      pager.pin(i);
      held.pop_back();
    }
  }
  if (strict) pager.set_budget((count - 1) * kSize);
  std::size_t turn = 0;
  bench.run("miss of 64 B, " + std::to_string(loose) + " evictable of " + std::to_string(count) +
                (strict ? ", the others held, strict" : ", the others pinned"),
            [&] { ankerl::nanobench::doNotOptimizeAway(pager.acquire(first + turn++ % (loose + 1)).bytes().data()); });
}

}  // namespace

void bench_pager_small_misses(ankerl::nanobench::Bench& bench) {
  bench.title("a pager, misses of small tensors").unit("miss").batch(1).epochs(11).minEpochIterations(20'000);
  for (const std::size_t count : {1'000, 100'000}) {
    for (const std::size_t loose : {std::size_t{1}, count / 2}) {
      for (const bool strict : {false, true}) bench_few_evictable(bench, count, loose, strict);
    }
  }

  constexpr std::size_t kSize = 4096;
  const auto path = std::filesystem::temp_directory_path() / "weightstore-pager-small-bench";
  for (const std::size_t count : {std::size_t{1'024}, std::size_t{65'536}}) {
    std::ofstream(path, std::ios::binary) << std::string(count * kSize, 'w');
    for (const std::string how : {"read", "copied from a mapping", "views of a mapping"}) {
      PagerOptions options;
      options.budget = 2 * kSize;
      options.direct = DirectReads::kNever;
      options.zero_copy = how.starts_with("views");
      Pager pager(how == "read" ? raw_file(path) : raw_mapped_file(path), entries_of(count, kSize), options);
      std::size_t i = 0;
      bench.run("miss of 4 KiB, 2 of " + std::to_string(count) + " fit, " + how,
                [&] { ankerl::nanobench::doNotOptimizeAway(pager.acquire(i = (i + 1) % count).bytes().data()); });
    }
  }
  std::filesystem::remove(path);
  bench.minEpochIterations(1);
}

}  // namespace benches
