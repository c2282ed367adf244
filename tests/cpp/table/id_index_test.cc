#include "table/id_index.h"

#include <cstdint>
#include <map>
#include <random>

#include "check.h"
#include "io/huge_buffer.h"

using namespace weightstore;
using table::IdIndex;

namespace {

// An index and what it must hold.
struct Checked {
  explicit Checked(std::uint64_t secret) : index(secret, fresh) {}

  void add(std::int64_t id) {
    index.reserve(index.size() + 1);
    IdIndex::Entry* entry = index.entry_for(id, index.home(id));
    if (entry->row_plus_one != 0) return;
    index.take(entry, id, next_row);
    rows[id] = next_row++;
  }

  void remove(std::int64_t id) {
    IdIndex::Entry* entry = index.find(id);
    CHECK_EQ(entry != nullptr, rows.erase(id) == 1);
    if (entry != nullptr) index.erase(entry);
  }

  void check_all() const {
    CHECK_EQ(index.size(), rows.size());
    for (const auto& [id, row] : rows) {
      const IdIndex::Entry* entry = index.find(id);
      CHECK(entry != nullptr);
      CHECK_EQ(entry->row(), row);
    }
    std::size_t seen = 0;
    index.for_each([&](const IdIndex::Entry&) { ++seen; });
    CHECK_EQ(seen, rows.size());
  }

  io::FreshPages fresh;
  IdIndex index;
  std::map<std::int64_t, std::uint32_t> rows;
  std::uint32_t next_row = 0;
};

}  // namespace

// Growing where it is moves entries past each other, also over both ends: with many secrets every way of meeting comes
// up.
TEST(every_id_is_found_after_each_growth) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    Checked checked(random());
    for (int i = 0; i < 1500; ++i) {
      checked.add(static_cast<std::int64_t>(random()));
      if (i % 5 == 4) checked.remove(checked.rows.begin()->first);
      if (i % 170 == 169) checked.check_all();
    }
    checked.check_all();
  }
}

TEST(ids_that_follow_each_other_are_found_too) {
  Checked checked(7);
  for (std::int64_t id = -70'000; id < 70'000; ++id) checked.add(id);
  checked.check_all();
  for (std::int64_t id = -70'000; id < 70'000; id += 2) checked.remove(id);
  checked.check_all();
  CHECK(checked.index.find(-70'000) == nullptr);
}

TEST(a_reserve_may_grow_by_more_than_twice) {
  for (std::uint64_t secret = 1; secret < 50; ++secret) {
    Checked checked(secret);
    for (std::int64_t id = 0; id < 170; ++id) checked.add(id * 64);
    checked.index.reserve(40'000);
    checked.check_all();
    checked.index.reserve(3'000'000);
    checked.check_all();
  }
}

TEST(a_cleared_index_starts_again) {
  Checked checked(3);
  for (std::int64_t id = 0; id < 1000; ++id) checked.add(id);
  checked.index.clear();
  checked.rows.clear();
  CHECK(checked.index.find(5) == nullptr);
  checked.add(5);
  checked.check_all();
}

RUN_TESTS()
