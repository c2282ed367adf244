// What the pager promises about loading, eviction, pins, handles and statistics.

#include "check.h"
#include "io/file_source.h"
#include "pager_sources.h"
#include "weightstore/pager.h"

using namespace weightstore;
using namespace pager_sources;

TEST(the_one_used_longest_ago_leaves) {
  Model model(3, 100, with_budget(200));
  model.pager->acquire("0");
  model.pager->acquire("1");
  CHECK_EQ(model.pager->resident_count(), 2u);
  model.pager->acquire("2");
  CHECK(model.residents() == (Slots{1, 2}));
  CHECK_EQ(model.pager->resident_count(), 2u);
  CHECK_EQ(model.pager->resident_bytes(), 200u);
  CHECK_EQ(model.pager->stats().evictions, 1u);
  CHECK_EQ(model.pager->stats(0).evictions, 1u);
}

TEST(a_use_counts_as_recent) {
  Model model(3, 100, with_budget(200));
  for (const std::size_t i : {0, 1, 0, 2}) model.pager->acquire(i);
  CHECK(model.residents() == (Slots{0, 2}));
}

TEST(pinned_ones_stay_and_the_excess_is_reported) {
  Model model(3, 100, with_budget(100, {"0"}));
  model.pager->acquire("0");
  CHECK_EQ(model.pager->over_budget_bytes(), 0u);
  model.pager->acquire("1");
  CHECK(model.pager->is_resident(0));
  CHECK_EQ(model.pager->resident_bytes(), 200u);
  CHECK_EQ(model.pager->over_budget_bytes(), 100u);
  CHECK_EQ(model.pager->stats().over_budget_events, 1u);
  model.pager->acquire("2");
  CHECK(model.residents() == (Slots{0, 2}));
}

TEST(a_tensor_has_its_bytes) {
  const auto source = std::make_shared<CountingSource>(test_files::pattern(300));
  const std::vector<NamedEntry> one = {{"t", {128, 64}}};
  Pager pager(source, one);
  CHECK_EQ(pager.budget_bytes(), kUnlimited);
  CHECK_EQ(text_of(pager.acquire("t")), source->text(128, 64));
}

TEST(an_unknown_name_changes_nothing) {
  Model model(2, 100, with_budget(100));
  model.pager->acquire("1");
  const PagerStats before = model.pager->stats();
  const Error error = CHECK_THROWS(Error, model.pager->acquire("7"));
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK_EQ(error.tensor(), "7");
  CHECK(CHECK_THROWS(Error, model.pager->acquire(std::size_t{2})).code() == ErrorCode::kNotFound);
  CHECK(model.residents() == Slots{1});
  const PagerStats after = model.pager->stats();
  CHECK_EQ(after.errors, before.errors + 1);
  CHECK_EQ(after.misses, before.misses);
  CHECK_EQ(after.evictions, 0u);
}

TEST(the_same_tensor_is_read_once) {
  Model model(4, 32, {});
  const ResidentTensor first = model.pager->acquire("2");
  const ResidentTensor second = model.pager->acquire("2");
  CHECK_EQ(text_of(first), model.source->text(64, 32));
  CHECK(first.bytes().data() == second.bytes().data());
  CHECK_EQ(model.source->reads(), 1u);
}

TEST(a_file_gives_its_bytes) {
  const test_files::TempDir dir;
  const std::string payload = test_files::pattern(256);
  test_files::write_file(dir / "raw", payload);
  const auto source = io::open_file(dir / "raw", false, io::system_file_ops());
  const std::vector<NamedEntry> one = {{"t", {5, 10}}};
  Pager pager(source, one);
  CHECK_EQ(text_of(pager.acquire("t")), payload.substr(5, 10));
}

TEST(a_range_that_is_not_there_says_how_much_is) {
  const test_files::TempDir dir;
  test_files::write_file(dir / "raw", "12345");
  const auto source = io::open_file(dir / "raw", false, io::system_file_ops());
  const std::vector<NamedEntry> one = {{"t", {0, 100}}};
  const OffloadEof error = CHECK_THROWS(OffloadEof, Pager(source, one));
  CHECK_EQ(*error.offset(), 0u);
  CHECK_EQ(error.needed(), 100u);
  CHECK_EQ(error.available(), 5u);
  CHECK_EQ(error.tensor(), "t");
}

TEST(what_callers_hold_is_counted_apart) {
  Model model(3, 50, with_budget(100));
  CHECK_EQ(model.pager->resident_count(), 0u);
  std::vector<ResidentTensor> held;
  held.push_back(model.pager->acquire("0"));
  CHECK_EQ(model.pager->resident_count(), 1u);
  held.push_back(model.pager->acquire("1"));
  CHECK_EQ(model.pager->resident_count(), 2u);
  held.push_back(model.pager->acquire("2"));
  CHECK_EQ(model.pager->resident_count(), 2u);
  CHECK_EQ(model.pager->resident_bytes(), 100u);
  CHECK_EQ(model.pager->live_bytes(), 150u);
  for (std::size_t i = 0; i < 3; ++i) CHECK_EQ(text_of(held[i]), data_of(i, 50));
  held.clear();
  CHECK_EQ(model.pager->live_bytes(), 100u);
  CHECK_EQ(model.pager->stats().peak_live_bytes, 150u);
}

TEST(pinned_is_what_was_said) {
  Model model(2, 10, with_budget(100, {"0"}));
  CHECK(model.pager->is_pinned(0));
  CHECK(!model.pager->is_pinned(1));
  CHECK(!model.pager->is_resident(0));
}

TEST(a_budget_of_one_tensor_holds_one) {
  Model model(4, 50, with_budget(50));
  for (const std::size_t i : {0, 1, 2, 3, 1}) {
    model.pager->acquire(i);
    CHECK_EQ(model.pager->resident_bytes(), 50u);
    CHECK(model.residents() == Slots{i});
  }
}

TEST(a_slot_is_its_name) {
  Model model(3, 10, {});
  CHECK_EQ(model.pager->table().name(model.pager->slot("1")), "1");
}

TEST(a_budget_of_nothing_holds_the_last) {
  Model model(2, 50, with_budget(0));
  model.pager->acquire("0");
  model.pager->acquire("1");
  CHECK(model.residents() == Slots{1});
  CHECK_EQ(model.pager->over_budget_bytes(), 50u);
}

TEST(evicted_and_held_comes_back_without_reading) {
  Model model(3, 50, with_budget(50));
  const ResidentTensor held = model.pager->acquire("0");
  model.pager->acquire("1");
  CHECK(!model.pager->is_resident(0));
  const ResidentTensor again = model.pager->acquire("0");
  CHECK(again.bytes().data() == held.bytes().data());
  CHECK(model.residents() == Slots{0});
  CHECK_EQ(model.source->reads(), 2u);
  CHECK_EQ(model.pager->stats().resurrected, 1u);
  CHECK_EQ(model.pager->live_bytes(), 50u);
}

TEST(pins_are_counted) {
  Model model(3, 50, with_budget(50));
  model.pager->acquire("0");
  model.pager->pin(0);
  model.pager->pin(0);
  model.pager->unpin(0);
  CHECK(model.pager->is_pinned(0));
  CHECK(!model.pager->evict(0));
  model.pager->acquire("1");
  CHECK(model.residents() == (Slots{0, 1}));
  model.pager->unpin(0);
  model.pager->acquire("2");
  CHECK(model.residents() == Slots{2});
  const Error error = CHECK_THROWS(Error, model.pager->unpin(0));
  CHECK(error.code() == ErrorCode::kInvalidArgument);
}

TEST(an_unpinned_tensor_is_as_old_as_its_last_use) {
  // Many slots, so that victims are found in batches.
  Model model(300, 1, with_budget(200));
  model.pager->pin(0);
  for (std::size_t i = 0; i < 200; ++i) model.pager->acquire(i);
  model.pager->acquire(std::size_t{200});
  CHECK(!model.pager->is_resident(1));
  model.pager->unpin(0);
  model.pager->acquire(std::size_t{201});
  CHECK(!model.pager->is_resident(0));
  CHECK(model.pager->is_resident(2));
}

TEST(evict_clear_and_set_budget) {
  Model model(4, 50, with_budget(200, {"3"}));
  for (std::size_t i = 0; i < 4; ++i) model.pager->acquire(i);
  CHECK(model.pager->evict(1));
  CHECK(!model.pager->evict(1));
  CHECK(model.residents() == (Slots{0, 2, 3}));
  model.pager->set_budget(100);
  CHECK(model.residents() == (Slots{2, 3}));
  CHECK_EQ(model.pager->budget_bytes(), 100u);
  CHECK_EQ(model.pager->clear(), 1u);
  CHECK(model.residents() == Slots{3});
  CHECK_EQ(model.pager->live_bytes(), 50u);
  model.pager->set_budget(10);
  CHECK_EQ(model.pager->over_budget_bytes(), 40u);
}

TEST(acquire_many_reads_each_once) {
  Model model(6, 100, with_budget(kUnlimited));
  model.pager->acquire("4");
  const Slots wanted = {5, 0, 4, 0, 2};
  const auto tensors = model.pager->acquire_many(wanted);
  for (std::size_t k = 0; k < wanted.size(); ++k) CHECK_EQ(text_of(tensors[k]), data_of(wanted[k], 100));
  CHECK(tensors[1].bytes().data() == tensors[3].bytes().data());
  CHECK_EQ(model.source->reads(), 4u);
  CHECK_EQ(model.pager->stats().hits, 1u);
  // In this order of use, whatever the order of arrival.
  model.pager->set_budget(300);
  CHECK(model.residents() == (Slots{0, 2, 4}));
}

TEST(acquire_many_reads_nothing_that_was_there) {
  Model model(3, 100, with_budget(100));
  const ResidentTensor held = model.pager->acquire("0");
  model.pager->acquire("1");
  CHECK(model.residents() == Slots{1});
  const Slots wanted = {0, 1};
  const auto tensors = model.pager->acquire_many(wanted);
  CHECK_EQ(model.source->reads(), 2u);
  CHECK_EQ(model.pager->stats().hits, 1u);
  CHECK_EQ(model.pager->stats().resurrected, 1u);
}

TEST(acquire_many_is_all_or_nothing) {
  Model model(4, 100, with_budget(kUnlimited));
  model.source->before_read = [](std::uint64_t offset, std::size_t) {
    if (offset == 200) throw Error(ErrorCode::kIo, "refused").with_errno(EIO);
  };
  const Slots wanted = {0, 1, 2, 3};
  const Error error = CHECK_THROWS(Error, model.pager->acquire_many(wanted));
  CHECK_EQ(error.os_errno(), EIO);
  CHECK_EQ(error.tensor(), "2");
  model.pager->clear();
  CHECK_EQ(model.pager->live_bytes(), 0u);
}

TEST(bytes_outlive_everything) {
  SharedBytes view;
  ResidentTensor tensor;
  {
    Model model(2, 50, with_budget(50));
    tensor = model.pager->acquire("0");
    view = model.pager->acquire("1").share();
  }
  CHECK_EQ(text_of(tensor), data_of(0, 50));
  tensor.release();
  CHECK(!tensor);
  CHECK_EQ(test_files::as_text(view.bytes), data_of(1, 50));
}

TEST(a_closed_pager_says_so) {
  Model model(2, 50, {});
  const ResidentTensor held = model.pager->acquire("0");
  model.pager->close();
  CHECK_EQ(model.pager->resident_count(), 0u);
  CHECK_EQ(model.pager->live_bytes(), 50u);
  CHECK(CHECK_THROWS(Error, model.pager->acquire("0")).code() == ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, model.pager->prefetch(Slots{1})).code() == ErrorCode::kInvalidArgument);
  CHECK_EQ(text_of(held), data_of(0, 50));
}

TEST(moved_handles_release_once) {
  Model model(2, 50, with_budget(0));
  ResidentTensor a = model.pager->acquire("0");
  ResidentTensor b = std::move(a);
  CHECK(!a);
  a = std::move(b);
  CHECK_EQ(text_of(a), data_of(0, 50));
  CHECK_EQ(a.slot(), 0u);
  a = model.pager->acquire("1");
  CHECK_EQ(model.pager->live_bytes(), 50u);
}

TEST(empty_tensors_are_tensors) {
  const auto source = std::make_shared<CountingSource>("abc");
  const std::vector<NamedEntry> two = {{"none", {3, 0}}, {"some", {1, 2}}};
  Pager pager(source, two, with_budget(2));
  CHECK_EQ(pager.acquire("none").size(), 0u);
  CHECK_EQ(text_of(pager.acquire("some")), "bc");
  CHECK_EQ(pager.resident_count(), 2u);
  CHECK(CHECK_THROWS(Error, Pager(source, two,
                                  [] {
                                    PagerOptions options;
                                    options.readers = 0;
                                    return options;
                                  }()))
            .code() == ErrorCode::kInvalidArgument);
}

TEST(statistics_of_one_and_of_all) {
  Model model(3, 10, with_budget(20));
  for (int pass = 0; pass < 3; ++pass) {
    for (std::size_t i = 0; i < 3; ++i) model.pager->acquire(i);
  }
  model.pager->acquire(std::size_t{2});
  const PagerStats all = model.pager->stats();
  CHECK_EQ(all.misses, 9u);
  CHECK_EQ(all.loads, 9u);
  CHECK_EQ(all.bytes_read, 90u);
  CHECK_EQ(all.evictions, 7u);
  CHECK_EQ(all.hits, 1u);
  CHECK_EQ(all.pass_count, 2u);
  CHECK_EQ(model.pager->stats(2).hits, 1u);
  CHECK_EQ(model.pager->stats(2).loads, 3u);
  CHECK(all.load_ns > 0 && all.wait_ns > 0);
  model.pager->reset_stats();
  CHECK_EQ(model.pager->stats().misses, 0u);
  CHECK_EQ(model.pager->stats(2).hits, 0u);
  CHECK_EQ(model.pager->stats().peak_live_bytes, 20u);
}

RUN_TESTS()
