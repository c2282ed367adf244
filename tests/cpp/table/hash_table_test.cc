// Facts about hash tables, each operation by itself.

#include "weightstore/hash_table.h"

#include <algorithm>
#include <limits>
#include <string>

#include "check.h"
#include "table_values.h"
#include "weightstore/error.h"

using namespace weightstore;
using namespace table_values;

TEST(rows_come_back_as_they_were_inserted) {
  HashTable table(options(3));
  table.insert(Ids{7, -1, 1ll << 60}, bytes_of(Floats{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  CHECK_EQ(table.size(), 3u);
  CHECK(lookup(table, {1ll << 60, 7, 5, -1}, 3) == (Floats{7, 8, 9, 1, 2, 3, 0, 0, 0, 4, 5, 6}));
  CHECK_EQ(table.size(), 3u);
}

TEST(unknown_ids_have_no_row_unless_they_are_inserted) {
  HashTable table(options(1));
  std::vector<std::int64_t> rows(3, 99);
  table.lookup(Ids{1, 2, 1}, false, rows, {});
  CHECK(rows == (Ids{-1, -1, -1}));
  table.lookup(Ids{1, 2, 1}, true, rows, {});
  CHECK(rows[0] >= 0 && rows[1] >= 0 && rows[0] == rows[2] && rows[0] != rows[1]);
  std::vector<std::int64_t> again(2);
  table.lookup(Ids{2, 1}, false, again, {});
  CHECK(again == (Ids{rows[1], rows[0]}));
  CHECK_EQ(table.size(), 2u);
}

TEST(a_null_pointer_is_not_a_buffer_that_is_not_wanted) {
  HashTable table(options(1));
  table.insert(Ids{1, 2}, bytes_of(Floats{1, 2}));
  const std::span<const std::int64_t> no_ids(static_cast<const std::int64_t*>(nullptr), 2);
  const ConstBytes no_bytes(static_cast<const std::byte*>(nullptr), 8);
  const MutableBytes no_output(static_cast<std::byte*>(nullptr), 8);
  const std::span<std::int64_t> no_rows(static_cast<std::int64_t*>(nullptr), 2);
  const std::span<std::uint8_t> no_answers(static_cast<std::uint8_t*>(nullptr), 2);
  const Ids ids{1, 2};
  Floats out(2);
  const auto into = std::as_writable_bytes(std::span(out));
  const auto refused = [](auto call) {
    const Error error = CHECK_THROWS(Error, call());
    return error.code() == ErrorCode::kInvalidArgument;
  };
  CHECK(refused([&] { table.lookup(ids, false, {}, no_output); }));
  CHECK(refused([&] { table.lookup(ids, true, no_rows, into); }));
  CHECK(refused([&] { table.lookup(no_ids, false, {}, into); }));
  CHECK(refused([&] { table.lookup(ids, false, {}, MutableBytes{}); }));  // too small, not "not wanted"
  CHECK(refused([&] { table.insert(ids, no_bytes); }));
  CHECK(refused([&] { table.insert(no_ids, bytes_of(out)); }));
  CHECK(refused([&] { table.erase(no_ids); }));
  CHECK(refused([&] { table.contains(ids, no_answers); }));
  CHECK(refused([&] { table.read_slot(0, ids, no_output); }));
  CHECK(refused([&] { table.write_slot(0, ids, no_bytes); }));
  CHECK(refused([&] { table.read_slot_rows(0, ids, no_output); }));
  CHECK(refused([&] { table.write_slot_rows(0, no_ids, bytes_of(out)); }));
  CHECK(refused([&] { table.touch(no_ids, 1); }));
  CHECK(refused([&] { table.load_rows(0, ids, std::vector<HashTable::SlotBytes>{{0, no_bytes}}); }));
  CHECK(lookup(table, ids, 1) == (Floats{1, 2}));
  table.lookup({}, true, std::span<std::int64_t>{}, MutableBytes{});  // nothing of nothing
  table.lookup(Ids{3}, true, std::nullopt, std::nullopt);
  CHECK_EQ(table.size(), 3u);
}

TEST(of_equal_ids_in_a_batch_the_last_wins_and_there_is_one_row) {
  HashTable table(options(1));
  Ids ids;
  Floats values;
  for (int i = 0; i < 1000; ++i) {
    ids.push_back(i % 7);
    values.push_back(static_cast<float>(i));
  }
  table.insert(ids, bytes_of(values));
  CHECK_EQ(table.size(), 7u);
  CHECK(lookup(table, {0, 1, 5, 6}, 1) == (Floats{994, 995, 999, 993}));
  const auto snapshot = table.snapshot();
  CHECK_EQ(snapshot->size(), 7u);
  CHECK_EQ(rows_of<float>(*snapshot, 0, 1).size(), 7u);
}

TEST(clear_then_insert) {
  HashTable table(options(2));
  for (int round = 0; round < 3; ++round) {
    Ids ids(1000);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i) * 31 + round;
    lookup(table, ids, 2, true);
    CHECK_EQ(table.size(), 1000u);
    table.clear();
    CHECK_EQ(table.size(), 0u);
    CHECK(table.ids().empty());
    CHECK_EQ(table.snapshot()->size(), 0u);
  }
  table.insert(Ids{5}, bytes_of(Floats{1, 2}));
  CHECK(lookup(table, {5, 31}, 2) == (Floats{1, 2, 0, 0}));
}

TEST(erased_rows_are_gone_and_used_again) {
  TableOptions one_stripe = options(1);
  one_stripe.stripes = 1;
  HashTable table(one_stripe);
  Ids ids(100);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
  lookup(table, ids, 1, true);
  CHECK_EQ(table.erase(Ids{3, 3, 99, 1000}), 2u);
  CHECK_EQ(table.size(), 98u);
  std::vector<std::uint8_t> found(3);
  table.contains(Ids{3, 4, 1000}, found);
  CHECK(found == (std::vector<std::uint8_t>{0, 1, 0}));
  std::vector<std::int64_t> rows(2);
  table.lookup(Ids{500, 501}, true, rows, {});
  CHECK(std::max(rows[0], rows[1]) == 99 && std::min(rows[0], rows[1]) == 3);
  table.lookup(Ids{502, 500}, true, rows, {});
  CHECK_EQ(rows[0], 100);
}

TEST(a_row_that_comes_back_starts_anew) {
  HashTable table(options(1));
  const std::size_t slot = table.add_slot("moment", {1}, DType::kF32, {Initializer::Kind::kConstant, 0.5});
  table.insert(Ids{1}, bytes_of(Floats{9}));
  CHECK_EQ(table.write_slot(slot, Ids{1, 2}, bytes_of(Floats{4, 4})), 1u);
  CHECK(read_slot<float>(table, slot, {1, 2}) == (Floats{4, 0}));
  table.erase(Ids{1});
  CHECK(lookup(table, {1}, 1, true) == (Floats{0}));
  CHECK(read_slot<float>(table, slot, {1}) == (Floats{0.5}));
}

TEST(changes_since_an_epoch) {
  HashTable table(options(1));
  lookup(table, {1, 2, 3, 4}, 1, true);
  CHECK_EQ(table.epoch(), 1u);
  CHECK_EQ(table.changed_since(0).changed.size(), 4u);
  const std::uint64_t epoch = table.snapshot()->epoch();
  CHECK_EQ(epoch, 2u);
  CHECK(table.changed_since(epoch).changed.empty());
  lookup(table, {1, 5}, 1, true);  // reading 1 changes nothing
  table.insert(Ids{2}, bytes_of(Floats{1}));
  table.erase(Ids{3, 4});
  lookup(table, {4}, 1, true);
  const auto changes = table.changed_since(epoch);
  Ids changed = changes.changed;
  std::sort(changed.begin(), changed.end());
  CHECK(changed == (Ids{2, 4, 5}));
  CHECK(changes.erased == (Ids{3}));
  const std::uint64_t later = table.snapshot()->epoch();
  CHECK(table.changed_since(later).erased.empty());
  CHECK(table.changed_since(epoch).erased == (Ids{3}));
  table.clear();
  CHECK(CHECK_THROWS(Error, table.changed_since(later)).code() == ErrorCode::kInvalidArgument);
  CHECK_THROWS(Error, table.changed_since(later + 1));
}

TEST(erasures_are_remembered_only_for_a_while) {
  TableOptions one_stripe = options(1);
  one_stripe.stripes = 1;
  HashTable table(one_stripe);
  const std::uint64_t first = table.snapshot()->epoch();
  for (std::int64_t i = 0; i < 4096; ++i) {
    lookup(table, {i}, 1, true);
    table.erase(Ids{i});
  }
  CHECK_EQ(table.changed_since(first).erased.size(), 4096u);
  const std::uint64_t second = table.snapshot()->epoch();
  lookup(table, {-1}, 1, true);
  table.erase(Ids{-1});
  CHECK_THROWS(Error, table.changed_since(first));
  CHECK(table.changed_since(second).erased == (Ids{-1}));
}

TEST(ids_of_other_shards_are_refused_before_anything_changes) {
  TableOptions half = options(1);
  half.buckets = shard_buckets(1, 2);
  CHECK(half.buckets == (BucketRange{32768, 65536, 65536}));
  HashTable table(half);
  const Error error = CHECK_THROWS(Error, table.insert(Ids{40000, 5}, bytes_of(Floats{1, 2})));
  CHECK(std::string(error.what()).find("id 5 lies in bucket 5, but the table holds buckets [32768, 65536)") == 0);
  CHECK_EQ(table.size(), 0u);
  CHECK_THROWS(Error, lookup(table, {32767}, 1, true));
  table.insert(Ids{-1, 32768}, bytes_of(Floats{1, 2}));  // uint64(-1) mod 65536 is 65535
  CHECK(lookup(table, {-1, 5, 32768}, 1) == (Floats{1, 0, 2}));
  CHECK_EQ(table.erase(Ids{5}), 0u);
  const Floats values{7, 8};
  CHECK_EQ(table.load_rows(0, Ids{5, 65535}, {{{0, bytes_of(values)}}}), 1u);
  CHECK(lookup(table, {5, 65535}, 1) == (Floats{0, 8}));
}

TEST(shards_cover_all_buckets_the_larger_ones_first) {
  CHECK(shard_buckets(0, 3) == (BucketRange{0, 21846, 65536}));
  CHECK(shard_buckets(1, 3) == (BucketRange{21846, 43691, 65536}));
  CHECK(shard_buckets(2, 3) == (BucketRange{43691, 65536, 65536}));
  CHECK_THROWS(Error, shard_buckets(3, 3));
}

TEST(children_share_a_table) {
  TableOptions coalesced = options(1);
  for (int i = 0; i < 4094; ++i) coalesced.children.push_back("child" + std::to_string(i));
  HashTable table(coalesced);
  CHECK(table.coalesced());
  CHECK_EQ(coalesced_id(4093, -1), static_cast<std::int64_t>((4093ull << 52) | ((1ull << 52) - 1)));
  CHECK_EQ(child_of(coalesced_id(4093, -1)), 4093u);
  const Ids ids{coalesced_id(0, 5), coalesced_id(2048, 5), coalesced_id(4093, 6), coalesced_id(2048, 7)};
  table.insert(ids, bytes_of(Floats{1, 2, 3, 4}));
  CHECK(lookup(table, ids, 1) == (Floats{1, 2, 3, 4}));
  CHECK_THROWS(Error, table.insert(Ids{coalesced_id(4094, 5)}, bytes_of(Floats{1})));

  const auto snapshot = table.snapshot();
  using Rows = std::map<std::int64_t, Floats>;
  for (const std::size_t step : {1, 3, 8, 100}) {
    CHECK(rows_of<float>(*snapshot, 0, 1, 2048, step) == (Rows{{5, {2}}, {7, {4}}}));
    CHECK(rows_of<float>(*snapshot, 0, 1, 4093, step) == (Rows{{6, {3}}}));
    CHECK(rows_of<float>(*snapshot, 0, 1, 1, step).empty());
  }
  HashTable other(coalesced);
  const Floats values{8};
  CHECK_EQ(other.load_rows(2048, Ids{7}, {{{0, bytes_of(values)}}}), 1u);
  CHECK(lookup(other, {coalesced_id(2048, 7)}, 1) == (Floats{8}));
  coalesced.children.push_back("one too many");
  CHECK_THROWS(Error, HashTable(coalesced));
}

// As RecIS names a table that is not coalesced.
TEST(a_table_may_be_its_own_only_child) {
  TableOptions own = options(1);
  own.children = {own.name};
  HashTable table(own);
  CHECK(!table.coalesced());
  CHECK_EQ(table.children(), own.children);
  table.insert(Ids{-1, 1ll << 60}, bytes_of(Floats{1, 2}));
  CHECK(rows_of<float>(*table.snapshot(), 0, 1) == (std::map<std::int64_t, Floats>{{-1, {1}}, {1ll << 60, {2}}}));
  own.children = {"item"};
  HashTable other(own);
  CHECK(other.coalesced());
  CHECK_THROWS(Error, other.insert(Ids{-1}, bytes_of(Floats{1})));
}

TEST(reserve_keeps_what_is_there) {
  HashTable table(options(1));
  Ids ids(1000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i) * 7919;
  Floats values(ids.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  table.insert(ids, bytes_of(values));
  const std::uint64_t epoch = table.snapshot()->epoch();
  table.insert(Ids{ids[3]}, bytes_of(Floats{3}));
  for (const std::uint64_t rows : {0, 1000, 5000, 100000, 2000}) {
    table.reserve(rows);
    CHECK_EQ(table.size(), ids.size());
    CHECK_EQ(lookup(table, ids, 1), values);
    CHECK_EQ(table.changed_since(epoch).changed, Ids{ids[3]});
  }
  CHECK(CHECK_THROWS(Error, table.reserve(std::numeric_limits<std::uint64_t>::max())).code() == ErrorCode::kLimit);
}

TEST(senseless_tables_are_refused) {
  const auto refused = [](auto change) {
    TableOptions changed = options(4);
    change(changed);
    return CHECK_THROWS(Error, HashTable(changed)).code();
  };
  CHECK(refused([](TableOptions& o) { o.name = ""; }) == ErrorCode::kInvalidArgument);
  CHECK(refused([](TableOptions& o) { o.name = "\xff"; }) == ErrorCode::kInvalidArgument);
  CHECK(refused([](TableOptions& o) { o.children = {"a", ""}; }) == ErrorCode::kInvalidArgument);
  CHECK(refused([](TableOptions& o) { o.children = {"a", "\xff"}; }) == ErrorCode::kInvalidArgument);
  CHECK(refused([](TableOptions& o) { o.shape = {0}; }) == ErrorCode::kInvalidArgument);
  CHECK(refused([](TableOptions& o) { o.shape = {1ull << 62, 8}; }) == ErrorCode::kInvalidArgument);
  CHECK(refused([](TableOptions& o) { o.dtype = DType::kF4; }) == ErrorCode::kUnsupported);
  CHECK(refused([](TableOptions& o) { o.dtype = DType::kQFloat; }) == ErrorCode::kUnsupported);
  CHECK(refused([](TableOptions& o) { o.buckets = {5, 5, 65536}; }) == ErrorCode::kInvalidArgument);
  CHECK(refused([](TableOptions& o) { o.buckets = {0, 9, 8}; }) == ErrorCode::kInvalidArgument);
  CHECK(refused([](TableOptions& o) { o.buckets = {0, 0, 0}; }) == ErrorCode::kInvalidArgument);
  CHECK(refused([](TableOptions& o) { o.page_rows = 100; }) == ErrorCode::kInvalidArgument);
  CHECK(refused([](TableOptions& o) { o.page_rows = 0; }) == ErrorCode::kInvalidArgument);
  CHECK(refused([](TableOptions& o) { o.stripes = 0; }) == ErrorCode::kInvalidArgument);
  CHECK(refused([](TableOptions& o) { o.children = {"a", "b", "a"}; }) == ErrorCode::kInvalidArgument);

  HashTable table(options(4));
  for (const char* name : {"", "id", "a@b", "@", "\xff"}) CHECK_THROWS(Error, table.add_slot(name, {1}, DType::kF32));
  CHECK_THROWS(Error, table.add_slot("embedding", {1}, DType::kF32));
  CHECK_THROWS(Error, table.insert(Ids{1}, bytes_of(Floats{1, 2, 3})));
  CHECK_THROWS(Error, table.write_slot(1, Ids{}, {}));
}

TEST(every_slice_gives_stripes_that_cover_it) {
  for (const std::uint64_t size : {1ull, 2ull, 3ull, 1000ull, 65536ull, 65537ull, 1ull << 31}) {
    for (const std::uint64_t count : {1ull, 2ull, 3ull, 7ull}) {
      if (count > size) continue;
      for (std::uint64_t index = 0; index < count; ++index) {
        TableOptions part = options(1);
        part.buckets = shard_buckets(index, count, size);
        HashTable table(part);
        const auto snapshot = table.snapshot();
        std::uint64_t next = part.buckets.begin;
        for (std::size_t i = 0; i < snapshot->stripe_count(); ++i) {
          const BucketRange stripe = snapshot->buckets_of({i, i + 1});
          CHECK_EQ(stripe.begin, next);
          CHECK(stripe.begin < stripe.end);
          CHECK_EQ(stripe.size, size);
          next = stripe.end;
          for (const std::uint64_t bucket : {stripe.begin, stripe.end - 1}) {
            const Ids id{static_cast<std::int64_t>(bucket + size)};
            lookup(table, id, 1, true);
            CHECK(produced<std::int64_t>(*table.snapshot()->ids(0, {i, i + 1}), 8).back() == id[0]);
          }
        }
        CHECK_EQ(next, part.buckets.end);
      }
    }
  }
}
