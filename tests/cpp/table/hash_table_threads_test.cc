// Many threads on one table while snapshots are taken and read. Under ThreadSanitizer this also shows that they share
// nothing without a lock.

#include <atomic>
#include <random>
#include <thread>

#include "check.h"
#include "table_values.h"
#include "weightstore/hash_table.h"

using namespace weightstore;
using namespace table_values;

namespace {

constexpr std::size_t kDim = 4;

// Rows that say whose they are and of which version: a torn or mixed row does not fit together.
void fill_row(float* row, std::int64_t id, float version) {
  for (std::size_t k = 0; k < kDim; ++k) row[k] = static_cast<float>(id) * 8 + version;
}

bool whole(const float* row) {
  for (std::size_t k = 1; k < kDim; ++k) {
    if (row[k] != row[0]) return false;
  }
  return true;
}

}  // namespace

TEST(snapshots_are_stable_while_everything_changes) {
  HashTable table(options(kDim, 16));
  const std::size_t moment = table.add_slot("moment", {}, DType::kI64);
  std::atomic<bool> stop{false};
  std::atomic<bool> torn{false};

  const auto work = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    while (!stop) {
      Ids ids(100);
      for (std::int64_t& id : ids) id = static_cast<std::int64_t>(random() % 3000);
      Floats rows(ids.size() * kDim);
      switch (random() % 6) {
        case 0:
        case 1: {
          const float version = static_cast<float>(random() % 8);
          for (std::size_t i = 0; i < ids.size(); ++i) fill_row(&rows[i * kDim], ids[i], version);
          table.insert(ids, bytes_of(rows));
          break;
        }
        case 2:
          table.erase(ids);
          break;
        case 3:
          table.write_slot(moment, ids, bytes_of(ids));
          break;
        case 4:
          table.touch(ids, 1);
          break;
        default:
          table.lookup(ids, random() % 2 == 0, {}, std::as_writable_bytes(std::span(rows)));
          for (std::size_t i = 0; i < ids.size(); ++i) {
            if (!whole(&rows[i * kDim])) torn = true;
          }
      }
    }
  };
  std::vector<std::jthread> threads;
  for (std::uint64_t i = 0; i < 3; ++i) threads.emplace_back(work, i);

  for (int round = 0; round < 30; ++round) {
    const auto snapshot = table.snapshot();
    const auto once = rows_of<float>(*snapshot, 0, kDim, 0, 1000);
    CHECK_EQ(once.size(), snapshot->size());
    for (const auto& [id, row] : once) {
      CHECK(whole(row.data()));
      CHECK(row[0] == 0 || static_cast<std::int64_t>(row[0]) / 8 == id);
    }
    for (const auto& [id, value] : rows_of<std::int64_t>(*snapshot, moment, 1)) CHECK(value[0] == 0 || value[0] == id);
    CHECK(rows_of<float>(*snapshot, 0, kDim, 0, 777) == once);
  }
  stop = true;
  threads.clear();
  CHECK(!torn);
}

// Two batches that always go together: a snapshot sees all of a batch or nothing.
TEST(a_snapshot_sees_batches_whole) {
  HashTable table(options(1, 16));
  Ids ids(500);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * 131);
  std::atomic<bool> stop{false};
  std::jthread writer([&] {
    for (float version = 0; !stop; ++version) table.insert(ids, bytes_of(Floats(ids.size(), version)));
  });
  for (int round = 0; round < 50; ++round) {
    const auto rows = rows_of<float>(*table.snapshot(), 0, 1);
    CHECK(rows.empty() || rows.size() == ids.size());
    for (const auto& [id, row] : rows) CHECK_EQ(row[0], rows.begin()->second[0]);
  }
  stop = true;
}

TEST(a_snapshot_outlives_its_table) {
  std::shared_ptr<ByteProducer> producer;
  {
    HashTable table(options(1));
    table.insert(Ids{1, 2}, bytes_of(Floats{3, 3}));
    producer = table.snapshot()->slot(0, 0, {0, table.stripe_count()});
    table.clear();
    table.insert(Ids{1, 2}, bytes_of(Floats{9, 9}));
  }
  CHECK(produced<float>(*producer, 3) == (Floats{3, 3}));
  CHECK(produced<float>(*producer, 8) == (Floats{3, 3}));
}

TEST(loaders_load_from_several_threads) {
  HashTable table(options(kDim, 64));
  constexpr std::int64_t kIds = 20000;
  constexpr std::int64_t kThreads = 4;
  {
    std::vector<std::jthread> threads;
    for (std::int64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (std::int64_t first = t * 500; first < kIds; first += kThreads * 500) {
          Ids ids(500);
          Floats rows(ids.size() * kDim);
          for (std::size_t i = 0; i < ids.size(); ++i) {
            ids[i] = first + static_cast<std::int64_t>(i);
            fill_row(&rows[i * kDim], ids[i], 1);
          }
          table.load_rows(0, ids, {{{0, bytes_of(rows)}}});
        }
      });
    }
  }
  CHECK_EQ(table.size(), static_cast<std::uint64_t>(kIds));
  for (const auto& [id, row] : rows_of<float>(*table.snapshot(), 0, kDim)) {
    CHECK_EQ(row[0], static_cast<float>(id) * 8 + 1);
  }
}

RUN_TESTS()
