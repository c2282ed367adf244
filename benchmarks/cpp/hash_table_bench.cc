// A table of 8M rows of 16 F32, in batches of 64k: what a training step asks of it, and what a save takes from that.

#include <algorithm>
#include <random>
#include <span>

#include "benches.h"
#include "weightstore/hash_table.h"

namespace benches {

using namespace weightstore;

namespace {

constexpr std::size_t kRows = std::size_t{8} << 20;
constexpr std::size_t kBatch = std::size_t{64} << 10;
constexpr std::size_t kDim = 16;

// Ids that share nothing but being different: 8M of 2^62.
std::vector<std::int64_t> spread_ids() {
  std::vector<std::int64_t> ids(kRows);
  for (std::size_t i = 0; i < kRows; ++i) {
    ids[i] = static_cast<std::int64_t>((i * 0x9E3779B97F4A7C15u) >> 2);
  }
  return ids;
}

TableOptions table_options() {
  TableOptions options;
  options.name = "bench";
  options.shape = {kDim};
  return options;
}

}  // namespace

void bench_hash_table(ankerl::nanobench::Bench& bench) {
  std::vector<std::int64_t> ids = spread_ids();
  std::vector<float> rows(kBatch * kDim, 1.5f);
  const auto fill = [&](HashTable& table) {
    for (std::size_t first = 0; first < kRows; first += kBatch) {
      table.insert(std::span(ids).subspan(first, kBatch), std::as_bytes(std::span(rows)));
    }
  };
  bench.title("hash table of 8M rows of 16 F32").unit("row").epochs(3);
  bench.batch(kRows).run("insert into an empty table", [&] {
    HashTable table(table_options());
    fill(table);
  });

  HashTable table(table_options());
  fill(table);
  std::shuffle(ids.begin(), ids.end(), std::mt19937_64(1));
  std::size_t next = 0;
  const auto batch = [&] {
    next = (next + kBatch) % kRows;
    return std::span(ids).subspan(next, kBatch);
  };
  bench.batch(kBatch).epochs(kRows / kBatch / 4).minEpochIterations(4);
  bench.run("lookup into a reused output",
            [&] { table.lookup(batch(), false, {}, std::as_writable_bytes(std::span(rows))); });
  bench.run("overwrite", [&] { table.insert(batch(), std::as_bytes(std::span(rows))); });
  bench.batch(kRows).epochs(11).minEpochIterations(1);
  bench.run("snapshot", [&] { ankerl::nanobench::doNotOptimizeAway(table.snapshot()->size()); });
}

}  // namespace benches
