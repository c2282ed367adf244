// A table in a process made by fork(2) while other threads use it: as it was between two calls, and usable.

#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "check.h"
#include "child_process.h"
#include "table_values.h"
#include "weightstore/hash_table.h"

using namespace weightstore;
using namespace table_values;

namespace {

constexpr std::size_t kDim = 4;
constexpr std::size_t kIds = 2000;

// The allocator of AddressSanitizer (GCC 12) has locks that a forked process inherits locked when another thread of the
// parent allocates at that moment. No other threads run beside the fork then.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kThreadsBesideFork = false;
#else
constexpr bool kThreadsBesideFork = true;
#endif

Ids test_ids() {
  Ids ids(kIds);
  for (std::size_t i = 0; i < kIds; ++i) ids[i] = static_cast<std::int64_t>(i * 977);
  return ids;
}

// Runs `child` in a new process; true when it returned true within a minute.
template <class Child>
bool succeeds_in_child(Child child) {
  const pid_t id = ::fork();
  if (id == 0) child_process::run_and_exit(child);
  return child_process::succeeded(id);
}

// Threads that use a table until they are told to stop. Every batch gives all rows one value.
class Users {
 public:
  explicit Users(HashTable& table) {
    if (!kThreadsBesideFork) return;
    for (const float value : {1.0f, 2.0f}) {
      threads_.emplace_back([&table, value](const std::stop_token& stop) {
        const Ids ids = test_ids();
        const Floats rows(kIds * kDim, value);
        while (!stop.stop_requested()) table.insert(ids, bytes_of(rows));
      });
    }
    threads_.emplace_back([&table](const std::stop_token& stop) {
      while (!stop.stop_requested()) table.snapshot();
    });
    threads_.emplace_back([&table](const std::stop_token& stop) {
      const Ids ids = test_ids();
      while (!stop.stop_requested()) lookup(table, ids, kDim, false);
    });
  }

 private:
  std::vector<std::jthread> threads_;
};

}  // namespace

TEST(a_child_has_the_table_and_can_use_it) {
  TableOptions serial = options(kDim, 64);
  serial.threads = 1;
  HashTable table(serial);
  HashTable other(serial);
  const Ids ids = test_ids();
  table.insert(ids, bytes_of(Floats(kIds * kDim, 1)));
  const Users users(table);
  const Users others(other);
  for (int round = 0; round < 50; ++round) {
    const bool good = succeeds_in_child([&] {
      // Two batches run side by side stripe by stripe, but each row is whole, and all are there.
      const Floats rows = lookup(table, ids, kDim, false);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if ((rows[i] != 1 && rows[i] != 2) || rows[i] != rows[i / kDim * kDim]) return false;
      }
      if (table.size() != kIds) return false;
      table.insert(ids, bytes_of(Floats(kIds * kDim, 3)));
      table.insert(Ids{-1}, bytes_of(Floats(kDim, 4)));
      table.add_slot("moment", {1}, DType::kF32);
      const auto snapshot = table.snapshot();
      if (table.erase(ids) != kIds || snapshot->size() != kIds + 1) return false;
      table.clear();
      other.insert(ids, bytes_of(Floats(kIds * kDim, 5)));
      return table.size() == 0 && lookup(other, ids, kDim, false) == Floats(kIds * kDim, 5);
    });
    CHECK(good);
  }
  CHECK_EQ(table.size(), kIds);  // the parent's goes on
}

TEST(tables_come_and_go_while_a_process_forks) {
  std::atomic<bool> stop = false;
  std::jthread maker([&] {
    while (kThreadsBesideFork && !stop) {
      HashTable table(options(kDim, 64));
      table.insert(Ids{1}, bytes_of(Floats(kDim, 1)));
    }
  });
  bool good = true;
  for (int round = 0; round < 50 && good; ++round) {
    good = succeeds_in_child([] {
      HashTable table(options(kDim, 64));
      table.insert(Ids{1}, bytes_of(Floats(kDim, 1)));
      return table.size() == 1;
    });
  }
  stop = true;
  CHECK(good);
}

RUN_TESTS()
