// Callers whose deadline passes, or that are cancelled. Other callers are not affected.

#include <thread>

#include "check.h"
#include "pager_sources.h"

using namespace weightstore;
using namespace pager_sources;
using std::chrono::hours;
using std::chrono::milliseconds;

namespace {

PagerOptions strict_budget(std::uint64_t budget) {
  PagerOptions options = with_budget(budget);
  options.strict = true;
  return options;
}

bool never(std::uint64_t, std::uint64_t, std::string_view) { return false; }

// Cancels a call once `now` is set, and counts the calls of the callback.
struct Cancellation {
  std::atomic<bool> now = false;
  std::atomic<unsigned> calls = 0;
  Progress progress() {
    return [this](std::uint64_t, std::uint64_t, std::string_view) {
      ++calls;
      return !now;
    };
  }
};

template <class Condition>
void wait_until(Condition condition) {
  while (!condition()) std::this_thread::yield();
}

}  // namespace

TEST(a_wait_for_room_can_be_cancelled) {
  Model model(2, 50, strict_budget(50));
  ResidentTensor held = model.pager->acquire("0");
  std::uint64_t total = 0;
  std::string name;
  const Error error = CHECK_THROWS(Error, model.pager->acquire("1", hours(1), [&](auto, auto all, auto tensor) {
    total = all;
    name = tensor;
    return false;
  }));
  CHECK(error.code() == ErrorCode::kCancelled);
  CHECK_EQ(error.tensor(), "1");
  CHECK_EQ(total, 50u);
  CHECK_EQ(name, "1");
  CHECK_EQ(model.pager->live_bytes(), 50u);
  CHECK_EQ(model.pager->stats().errors, 1u);
  held.release();
  CHECK_EQ(text_of(model.pager->acquire("1")), data_of(1, 50));
}

TEST(what_the_callback_throws_is_thrown) {
  Model model(2, 50, strict_budget(50));
  const ResidentTensor held = model.pager->acquire("0");
  struct Mine {};
  CHECK_THROWS(Mine, model.pager->acquire("1", hours(1), [](auto, auto, auto) -> bool { throw Mine(); }));
}

TEST(who_joined_goes_on_when_the_first_is_cancelled) {
  Model model(2, 50, strict_budget(50));
  ResidentTensor held = model.pager->acquire("0");
  Cancellation off;
  std::jthread first([&] {
    const Error error = CHECK_THROWS(Error, model.pager->acquire("1", hours(1), off.progress()));
    CHECK(error.code() == ErrorCode::kCancelled);
  });
  wait_until([&] { return model.pager->stats().misses == 2; });
  std::jthread second([&] { CHECK_EQ(text_of(model.pager->acquire("1", hours(1))), data_of(1, 50)); });
  wait_until([&] { return model.pager->stats().coalesced_waits == 1; });
  off.now = true;
  first.join();
  wait_until([&] { return model.pager->stats().misses == 3; });
  held.release();
  second.join();
  const PagerStats stats = model.pager->stats();
  CHECK_EQ(stats.hits + stats.misses + stats.coalesced_waits, 3u);
  CHECK_EQ(stats.errors, 1u);
}

TEST(who_joined_has_time_of_its_own) {
  Model model(2, 50, strict_budget(50));
  ResidentTensor held = model.pager->acquire("0");
  // The first has more of it than the second ...
  std::jthread patient([&] { CHECK_EQ(text_of(model.pager->acquire("1", hours(1))), data_of(1, 50)); });
  wait_until([&] { return model.pager->stats().misses == 2; });
  const BudgetExceeded error = CHECK_THROWS(BudgetExceeded, model.pager->acquire("1", milliseconds(1)));
  CHECK_EQ(error.tensor(), "1");
  CHECK(error.holders() == std::vector<std::string>{"0"});
  held.release();
  patient.join();
  // ... or less.
  ResidentTensor other = model.pager->acquire("1");
  std::jthread hasty([&] { CHECK_THROWS(BudgetExceeded, model.pager->acquire("0", milliseconds(300))); });
  wait_until([&] { return model.pager->stats().misses == 3; });
  patient = std::jthread([&] { CHECK_EQ(text_of(model.pager->acquire("0", hours(1))), data_of(0, 50)); });
  hasty.join();
  other.release();
  patient.join();
  CHECK_EQ(model.pager->live_bytes(), 50u);
}

TEST(who_joined_can_be_cancelled) {
  Model model(1, 10, {});
  Gate gate;
  model.source->before_read = [&](std::uint64_t, std::size_t) { gate.pass(); };
  std::jthread first([&] { CHECK_EQ(text_of(model.pager->acquire("0")), data_of(0, 10)); });
  gate.wait_for(1);
  CHECK(CHECK_THROWS(Error, model.pager->acquire("0", hours(1), never)).code() == ErrorCode::kCancelled);
  gate.open();
  first.join();
  CHECK_EQ(model.source->reads(), 1u);
  CHECK_EQ(model.pager->clear(), 1u);
  CHECK_EQ(model.pager->live_bytes(), 0u);
}

TEST(a_long_read_can_be_cancelled) {
  constexpr std::size_t kSize = 64u << 20;
  Model model(1, kSize, {});
  model.source->before_read = [](std::uint64_t, std::size_t) { std::this_thread::sleep_for(milliseconds(60)); };
  Cancellation off;
  off.now = true;
  CHECK(CHECK_THROWS(Error, model.pager->acquire("0", {}, off.progress())).code() == ErrorCode::kCancelled);
  CHECK(model.source->reads() < 16);
  CHECK_EQ(model.pager->stats().load_errors, 1u);
  CHECK_EQ(model.pager->resident_bytes(), 0u);
  model.source->before_read = nullptr;
  off.now = false;
  CHECK(text_of(model.pager->acquire("0", {}, off.progress())) == data_of(0, kSize));
  model.pager->clear();
  CHECK_EQ(model.pager->live_bytes(), 0u);
}

TEST(many_can_be_cancelled) {
  Model model(6, 10, {});
  std::atomic<bool> slow = true;
  Gate gate;
  model.source->before_read = [&](std::uint64_t offset, std::size_t) {
    if (slow && offset == 20) gate.pass();
  };
  model.pager->acquire("5");
  std::jthread other([&] { CHECK_EQ(text_of(model.pager->acquire("2")), data_of(2, 10)); });
  gate.wait_for(1);
  const Slots wanted = {5, 0, 2, 3, 3, 4};
  CHECK(CHECK_THROWS(Error, model.pager->acquire_many(wanted, {}, never)).code() == ErrorCode::kCancelled);
  slow = false;
  gate.open();
  other.join();
  const auto tensors = model.pager->acquire_many(wanted);
  for (std::size_t k = 0; k < wanted.size(); ++k) CHECK_EQ(text_of(tensors[k]), data_of(wanted[k], 10));
  CHECK_EQ(model.pager->live_bytes(), 50u);
}

TEST(waiting_for_prefetches_can_be_cancelled) {
  Model model(2, 10, {});
  Gate gate;
  model.source->before_read = [&](std::uint64_t, std::size_t) { gate.pass(); };
  model.pager->prefetch(Slots{0, 1});
  CHECK(CHECK_THROWS(Error, model.pager->finish_prefetch(never)).code() == ErrorCode::kCancelled);
  gate.open();
  model.pager->finish_prefetch();
  CHECK(model.residents() == (Slots{0, 1}));
}

RUN_TESTS()
