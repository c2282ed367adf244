// A strict budget: what is alive, not only what is resident, stays within it.

#include <thread>

#include "check.h"
#include "pager_sources.h"

using namespace weightstore;
using namespace pager_sources;
using std::chrono::milliseconds;

namespace {

PagerOptions strict_budget(std::uint64_t budget, std::vector<std::string> pinned = {}) {
  PagerOptions options = with_budget(budget, std::move(pinned));
  options.strict = true;
  return options;
}

}  // namespace

TEST(what_nobody_holds_leaves_first) {
  Model model(4, 50, strict_budget(100));
  for (int pass = 0; pass < 2; ++pass) {
    for (std::size_t i = 0; i < 4; ++i) {
      model.pager->acquire(i);
      CHECK(model.pager->live_bytes() <= 100);
    }
  }
  CHECK(model.residents() == (Slots{2, 3}));
  CHECK_EQ(model.pager->stats().peak_live_bytes, 100u);
  CHECK_EQ(model.pager->over_budget_bytes(), 0u);
}

TEST(what_is_held_stays_and_others_leave) {
  Model model(4, 50, strict_budget(100));
  const ResidentTensor held = model.pager->acquire("0");
  for (const std::size_t i : {1, 2, 3}) model.pager->acquire(i);
  CHECK(model.residents() == (Slots{0, 3}));
}

TEST(no_room_names_the_holders) {
  Model model(4, 50, strict_budget(120, {"1"}));
  const ResidentTensor held = model.pager->acquire("0");
  model.pager->acquire("1");
  const BudgetExceeded error = CHECK_THROWS(BudgetExceeded, model.pager->acquire("2", milliseconds(1)));
  CHECK(error.code() == ErrorCode::kLimit);
  CHECK_EQ(error.tensor(), "2");
  CHECK_EQ(error.needed(), 50u);
  CHECK_EQ(error.budget(), 120u);
  CHECK(error.holders() == (std::vector<std::string>{"0", "1"}));
  CHECK(std::string(error.what()).find("'0', '1'") != std::string::npos);
  CHECK_EQ(model.pager->live_bytes(), 100u);
  CHECK_EQ(model.pager->stats().errors, 1u);
}

TEST(what_can_never_fit_is_refused_at_once) {
  Model model(2, 50, strict_budget(40));
  // An hour of waiting, were it not for that.
  CHECK_THROWS(BudgetExceeded, model.pager->acquire("0", std::chrono::hours(1)));
  Model pinned(2, 50, strict_budget(60, {"0"}));
  pinned.pager->acquire("0");
  CHECK_THROWS(BudgetExceeded, pinned.pager->acquire("1", std::chrono::hours(1)));
}

TEST(two_who_wait_do_not_wait_for_each_other) {
  Model model(3, 50, strict_budget(60, {"0"}));
  model.pager->acquire("0");
  std::vector<std::jthread> callers;
  for (const std::size_t i : {1, 2}) {
    callers.emplace_back([&, i] { CHECK_THROWS(BudgetExceeded, model.pager->acquire(i, std::chrono::hours(1))); });
  }
}

TEST(what_cannot_make_enough_room_stays) {
  const auto source = std::make_shared<CountingSource>(test_files::pattern(300));
  const std::vector<NamedEntry> map = {{"held", {0, 60}}, {"loose", {60, 20}}, {"large", {100, 50}}};
  Pager pager(source, map, strict_budget(100));
  const ResidentTensor held = pager.acquire("held");
  pager.acquire("loose");
  CHECK_THROWS(BudgetExceeded, pager.acquire("large", milliseconds(1)));
  pager.prefetch(Slots{pager.slot("large")});
  pager.finish_prefetch();
  CHECK(pager.is_resident(pager.slot("loose")));
  CHECK_EQ(pager.stats().evictions, 0u);
}

TEST(for_ever_is_a_time_to_wait) {
  Model model(2, 50, strict_budget(50));
  ResidentTensor held = model.pager->acquire("0");
  std::jthread waiter([&] { model.pager->acquire("1", milliseconds::max()); });
  while (model.pager->stats().misses < 2) std::this_thread::yield();
  held.release();
  waiter.join();
  CHECK(model.residents() == Slots{1});
  CHECK_THROWS(BudgetExceeded, [&] {
    const ResidentTensor other = model.pager->acquire("1");
    model.pager->acquire("0", milliseconds::min());
  }());
}

TEST(a_release_lets_the_waiter_through) {
  Model model(3, 50, strict_budget(100));
  ResidentTensor first = model.pager->acquire("0");
  const ResidentTensor second = model.pager->acquire("1");
  std::jthread waiter([&] { CHECK_EQ(text_of(model.pager->acquire("2", std::chrono::hours(1))), data_of(2, 50)); });
  while (model.pager->stats().misses < 3) std::this_thread::yield();
  first.release();
  waiter.join();
  CHECK(model.residents() == (Slots{1, 2}));
}

TEST(the_end_of_an_evicted_tensor_lets_the_waiter_through) {
  Model model(3, 50, strict_budget(100));
  ResidentTensor first = model.pager->acquire("0");
  const ResidentTensor second = model.pager->acquire("1");
  CHECK(model.pager->evict(0));
  CHECK_EQ(model.pager->live_bytes(), 100u);
  std::jthread waiter([&] { model.pager->acquire("2", std::chrono::hours(1)); });
  while (model.pager->stats().misses < 3) std::this_thread::yield();
  first.release();
  waiter.join();
  CHECK_EQ(model.pager->live_bytes(), 100u);
}

TEST(a_larger_budget_or_an_unpin_lets_the_waiter_through) {
  for (const bool unpin : {false, true}) {
    Model model(3, 50, strict_budget(100, {"0"}));
    model.pager->acquire("0");
    const ResidentTensor held = model.pager->acquire("1");
    std::jthread waiter([&] { model.pager->acquire("2", std::chrono::hours(1)); });
    while (model.pager->stats().misses < 3) std::this_thread::yield();
    if (unpin) {
      model.pager->unpin(0);
    } else {
      model.pager->set_budget(150);
    }
    waiter.join();
    CHECK(model.pager->is_resident(2));
  }
}

TEST(closing_ends_the_wait) {
  Model model(2, 50, strict_budget(50));
  const ResidentTensor held = model.pager->acquire("0");
  std::jthread waiter([&] {
    const Error error = CHECK_THROWS(Error, model.pager->acquire("1", std::chrono::hours(1)));
    CHECK(error.code() == ErrorCode::kInvalidArgument);
  });
  while (model.pager->stats().misses < 2) std::this_thread::yield();
  model.pager->close();
}

TEST(slack_and_kept_buffers_count) {
  constexpr std::size_t kSize = (64 << 10) + 1;  // a step of the pool is a page
  constexpr std::size_t kBuffer = 68 << 10;
  Model model(3, kSize, strict_budget(2 * kBuffer));
  model.pager->acquire("0");
  CHECK_EQ(model.pager->live_bytes(), kBuffer);
  model.pager->acquire("1");
  model.pager->evict(0);
  CHECK_EQ(model.pager->live_bytes(), 2 * kBuffer);  // the buffer waits for the next
  model.pager->acquire("2");
  CHECK_EQ(model.pager->live_bytes(), 2 * kBuffer);
  CHECK(model.residents() == (Slots{1, 2}));
  model.pager->set_budget(kBuffer);
  CHECK_EQ(model.pager->live_bytes(), kBuffer);
}

TEST(a_kept_buffer_makes_way_for_another_size) {
  const auto source = std::make_shared<CountingSource>(test_files::pattern(400'000));
  const std::vector<NamedEntry> two = {{"a", {0, 100'000}}, {"b", {100'000, 300'000}}};
  Pager pager(source, two, strict_budget(350'000));
  pager.acquire("a");
  pager.evict(0);
  CHECK_EQ(text_of(pager.acquire("b")), source->text(100'000, 300'000));
  CHECK(pager.live_bytes() <= 350'000);
}

TEST(a_prefetch_does_not_wait) {
  Model model(3, 50, strict_budget(100));
  const ResidentTensor first = model.pager->acquire("0");
  const ResidentTensor second = model.pager->acquire("1");
  model.pager->prefetch(Slots{2});
  model.pager->finish_prefetch();
  CHECK(!model.pager->is_resident(2));
  CHECK_EQ(model.pager->stats().prefetch_skipped, 1u);
  CHECK_EQ(model.pager->stats().load_errors, 0u);
}

TEST(threads_within_a_strict_budget) {
  Model model(12, 100, strict_budget(400));
  std::vector<std::jthread> threads;
  std::atomic<unsigned> failures = 0;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t k = 0; k < 2'000; ++k) {
        const std::size_t i = (k * 5 + t) % 12;
        const ResidentTensor tensor = model.pager->acquire(i, std::chrono::hours(1));
        if (text_of(tensor) != data_of(i, 100) || model.pager->live_bytes() > 400) ++failures;
      }
    });
  }
  threads.clear();
  CHECK_EQ(failures.load(), 0u);
  CHECK(model.pager->stats().peak_live_bytes <= 400);
}

RUN_TESTS()
