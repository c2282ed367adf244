#include <thread>

#include "check.h"
#include "pager_sources.h"

using namespace weightstore;
using namespace pager_sources;

TEST(a_prefetch_does_not_push_out_another) {
  Model model(5, 10, with_budget(30, {"4"}));
  model.pager->acquire("4");
  model.pager->acquire("3");
  model.pager->prefetch(Slots{0, 1, 2});
  model.pager->finish_prefetch();
  CHECK(model.residents() == (Slots{0, 1, 4}));
  const PagerStats stats = model.pager->stats();
  CHECK_EQ(stats.prefetch_issued, 3u);
  CHECK_EQ(stats.prefetch_skipped, 1u);
  CHECK_EQ(stats.over_budget_events, 0u);
  // Once one was used there is room again.
  model.pager->acquire("0");
  model.pager->prefetch(Slots{2});
  model.pager->finish_prefetch();
  CHECK(model.residents() == (Slots{1, 2, 4}));
}

TEST(what_is_resident_counts_as_used) {
  Model model(3, 10, with_budget(20));
  model.pager->acquire("0");
  model.pager->acquire("1");
  model.pager->prefetch(Slots{0});
  model.pager->acquire("2");
  CHECK(model.residents() == (Slots{0, 2}));
}

TEST(what_is_held_comes_back) {
  Model model(2, 10, with_budget(10));
  const ResidentTensor held = model.pager->acquire("0");
  model.pager->acquire("1");
  model.pager->prefetch(Slots{0});
  model.pager->finish_prefetch();
  CHECK(model.residents() == Slots{0});
  CHECK_EQ(model.source->reads(), 2u);
}

TEST(evicted_before_use_is_wasted) {
  Model model(3, 10, with_budget(10));
  model.pager->prefetch(Slots{0});
  model.pager->finish_prefetch();
  model.pager->acquire("1");
  CHECK_EQ(model.pager->stats().prefetch_wasted, 1u);
  CHECK_EQ(model.pager->stats(0).prefetch_wasted, 1u);
  CHECK_EQ(model.pager->stats().prefetch_used, 0u);
}

TEST(demand_overtakes_what_is_queued) {
  Model model(3, 10, [] {
    PagerOptions options;
    options.readers = 1;
    return options;
  }());
  Gate gate;
  model.source->before_read = [&](std::uint64_t offset, std::size_t) {
    if (offset == 0) gate.pass();
  };
  model.pager->prefetch(Slots{0, 1, 2});
  gate.wait_for(1);  // the only reader is busy
  CHECK_EQ(text_of(model.pager->acquire("2")), data_of(2, 10));
  CHECK_EQ(model.pager->stats().prefetch_late, 1u);
  gate.open();
  model.pager->finish_prefetch();
  CHECK_EQ(model.source->reads(), 3u);
  CHECK(model.residents() == (Slots{0, 1, 2}));
}

TEST(demand_waits_for_what_has_begun) {
  Model model(1, 10, {});
  Gate gate;
  model.source->before_read = [&](std::uint64_t, std::size_t) { gate.pass(); };
  model.pager->prefetch(Slots{0});
  gate.wait_for(1);
  std::jthread caller([&] { CHECK_EQ(text_of(model.pager->acquire("0")), data_of(0, 10)); });
  while (model.pager->stats().coalesced_waits == 0) std::this_thread::yield();
  gate.open();
  caller.join();
  CHECK_EQ(model.source->reads(), 1u);
  CHECK_EQ(model.pager->stats().prefetch_late, 1u);
  CHECK_EQ(model.pager->stats().prefetch_used, 0u);
}

TEST(an_error_shows_when_it_is_acquired) {
  Model model(2, 10, {});
  std::atomic<bool> fail = true;
  model.source->before_read = [&](std::uint64_t, std::size_t) {
    if (fail) throw Error(ErrorCode::kIo, "cannot read").with_errno(EIO);
  };
  model.pager->prefetch(Slots{0});
  model.pager->finish_prefetch();
  CHECK_EQ(model.pager->stats().load_errors, 1u);
  CHECK_EQ(model.pager->stats().errors, 0u);
  CHECK_THROWS(Error, model.pager->acquire("0"));
  fail = false;
  CHECK_EQ(text_of(model.pager->acquire("0")), data_of(0, 10));
}

TEST(what_has_not_begun_can_be_cancelled) {
  Model model(4, 10, [] {
    PagerOptions options;
    options.readers = 1;
    return options;
  }());
  Gate gate;
  model.source->before_read = [&](std::uint64_t, std::size_t) { gate.pass(); };
  model.pager->prefetch(Slots{0, 1, 2, 3});
  gate.wait_for(1);
  model.pager->evict(1);
  model.pager->clear();
  gate.open();
  model.pager->finish_prefetch();
  CHECK(model.residents() == Slots{0});
  CHECK_EQ(model.source->reads(), 1u);
}

TEST(closing_waits_for_reads_and_forgets_the_rest) {
  Model model(4, 10, {});
  Gate gate;
  model.source->before_read = [&](std::uint64_t, std::size_t) { gate.pass(); };
  model.pager->prefetch(Slots{0, 1, 2, 3});
  gate.wait_for(2);
  std::jthread closing([&] { model.pager->close(); });
  gate.open();
  closing.join();
  CHECK_EQ(model.pager->resident_count(), 0u);
  CHECK_EQ(model.pager->live_bytes(), 0u);
  CHECK(model.source->reads() <= 4);
}

TEST(a_large_tensor_is_read_in_parts) {
  constexpr std::size_t kSize = 21u << 20;
  Model model(2, kSize, {});
  CHECK(text_of(model.pager->acquire("1")) == data_of(1, kSize));
  CHECK_EQ(model.source->reads(), 5u);
  model.pager->prefetch(Slots{0});
  const ResidentTensor tensor = model.pager->acquire("0");
  CHECK(text_of(tensor) == data_of(0, kSize));
  CHECK_EQ(model.source->reads(), 10u);
}

TEST(a_part_that_fails_fails_the_whole) {
  constexpr std::size_t kSize = 21u << 20;
  Model model(1, kSize, {});
  std::atomic<bool> fail = true;
  model.source->before_read = [&](std::uint64_t offset, std::size_t) {
    if (fail && offset > kSize / 2) throw Error(ErrorCode::kIo, "cannot read").with_errno(EIO);
  };
  CHECK_EQ(CHECK_THROWS(Error, model.pager->acquire("0")).os_errno(), EIO);
  CHECK_EQ(model.pager->resident_bytes(), 0u);
  fail = false;
  CHECK(text_of(model.pager->acquire("0")) == data_of(0, kSize));
}

RUN_TESTS()
