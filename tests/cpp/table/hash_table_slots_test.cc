// Slots of hash tables, and the eviction of rows by what the slots `version` and `freq` say.

#include <algorithm>
#include <limits>
#include <string>

#include "check.h"
#include "table_values.h"
#include "weightstore/error.h"
#include "weightstore/hash_table.h"

using namespace weightstore;
using namespace table_values;

TEST(slots_can_be_added_to_a_table_with_rows) {
  HashTable table(options(1));
  Ids ids(100);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i) - 50;
  lookup(table, ids, 1, true);
  table.erase(Ids{0});
  const std::size_t slot = table.add_slot("counts", {2}, DType::kI16, {Initializer::Kind::kConstant, -3});
  CHECK_EQ(slot, 1u);
  CHECK(read_slot<std::int16_t>(table, slot, {49, 0, -50}, 2) == (std::vector<std::int16_t>{-3, -3, 0, 0, -3, -3}));
  CHECK_EQ(table.slots()[1].name, "counts");
  CHECK_EQ(table.slot_index("counts"), 1u);
  CHECK(!table.find_slot("count"));
  const Error error = CHECK_THROWS(Error, table.slot_index("count"));
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(std::string(error.what()).find("embedding, counts") != std::string::npos);
}

TEST(touched_rows_are_kept_and_others_evicted) {
  HashTable table(options(1));
  lookup(table, {1, 2, 3, 4}, 1, true);
  CHECK_EQ(table.touch(Ids{1, 2, 9}, 10), 2u);
  CHECK_EQ(table.touch(Ids{2, 3, 3}, 20), 3u);
  CHECK(read_slot<std::int64_t>(table, table.slot_index("version"), {1, 2, 3, 4}) == (Ids{10, 20, 20, 0}));
  CHECK(read_slot<std::int64_t>(table, table.slot_index("freq"), {1, 2, 3, 4}) == (Ids{1, 2, 2, 0}));
  CHECK_EQ(table.evict_older(10), 1u);
  CHECK_EQ(table.evict_rarer(2), 1u);
  Ids left = table.ids();
  std::sort(left.begin(), left.end());
  CHECK(left == (Ids{2, 3}));
}

// Some shards of a table are touched later than others.
TEST(nothing_is_evicted_before_the_first_touch) {
  HashTable table(options(1));
  lookup(table, {1, 2}, 1, true);
  CHECK_EQ(table.evict_older(1), 0u);
  CHECK_EQ(table.evict_rarer(1), 0u);
  CHECK_EQ(table.size(), 2u);
  CHECK_EQ(table.slots().size(), 1u);
}

TEST(touch_uses_slots_that_are_there) {
  HashTable table(options(1));
  table.add_slot("freq", {}, DType::kI64);
  table.add_slot("version", {}, DType::kI64);
  lookup(table, {1, 2}, 1, true);
  CHECK_EQ(table.touch(Ids{2}, 10), 1u);
  CHECK_EQ(table.slots().size(), 3u);
  CHECK_EQ(read_slot<std::int64_t>(table, 1, {1, 2}), (Ids{0, 1}));
  CHECK_EQ(read_slot<std::int64_t>(table, 2, {1, 2}), (Ids{0, 10}));
  CHECK_EQ(table.evict_older(10), 1u);
}

TEST(slots_of_other_types_are_not_touched) {
  HashTable table(options(1));
  table.add_slot("freq", {}, DType::kF32);
  lookup(table, {1}, 1, true);
  CHECK_THROWS(Error, table.touch(Ids{1}, 1));
  CHECK_EQ(table.slots().size(), 2u);  // none was added
  CHECK_THROWS(Error, table.evict_rarer(1));
  CHECK_EQ(table.evict_older(1), 0u);
}

TEST(uses_are_counted_up_to_the_largest_number) {
  HashTable table(options(1));
  const Ids ids = {5};
  lookup(table, ids, 1, true);
  table.touch(ids, 1);
  const std::size_t freq = table.slot_index("freq");
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  table.write_slot(freq, ids, bytes_of(Ids{kMost}));
  table.touch(ids, 2);
  CHECK_EQ(read_slot<std::int64_t>(table, freq, ids), Ids{kMost});
}

TEST(slots_by_row_number) {
  HashTable table(options(2));
  Ids ids;
  for (std::int64_t i = 0; i < 300; ++i) ids.push_back(i * 7919 - 1000);
  Ids rows(ids.size());
  Floats values(2 * ids.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  table.lookup(ids, true, rows, {});
  CHECK_EQ(table.write_slot_rows(0, rows, bytes_of(values)), ids.size());
  CHECK_EQ(lookup(table, ids, 2), values);
  table.erase(Ids{ids[1]});
  const auto epoch = table.snapshot()->epoch();
  const Ids some = {rows[2], -1, rows[1], std::numeric_limits<std::int64_t>::max(), rows[2]};
  Floats found(2 * some.size(), -1);
  table.read_slot_rows(0, some, std::as_writable_bytes(std::span(found)));
  CHECK_EQ(found, (Floats{4, 5, 0, 0, 0, 0, 0, 0, 4, 5}));
  // Of equal rows the last wins, and the change is noted.
  CHECK_EQ(table.write_slot_rows(0, some, bytes_of(Floats{1, 1, 2, 2, 3, 3, 4, 4, 5, 5})), std::size_t{2});
  CHECK_EQ(lookup(table, Ids{ids[2]}, 2), (Floats{5, 5}));
  CHECK_EQ(table.changed_since(epoch).changed, Ids{ids[2]});
  CHECK_THROWS(Error, table.write_slot_rows(0, some, bytes_of(Floats{1})));
}
