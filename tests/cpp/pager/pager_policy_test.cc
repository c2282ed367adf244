// Policies, and what a miss costs when few tensors can be evicted.

#include <thread>

#include "check.h"
#include "pager/default_budget.h"
#include "pager/policy/cycle_detector.h"
#include "pager/policy/kept_set.h"
#include "pager_sources.h"

using namespace weightstore;
using namespace pager_sources;

namespace {

std::vector<std::uint32_t> sequence(std::size_t count) {
  std::vector<std::uint32_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = static_cast<std::uint32_t>(i);
  return order;
}

std::uint64_t bytes_of(const std::vector<bool>& kept, const std::vector<std::uint64_t>& charges) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) sum += kept[i] ? charges[i] : 0;
  return sum;
}

}  // namespace

TEST(kept_tensors_are_spread_and_fill_the_room) {
  constexpr std::uint64_t kSize = 1 << 20;
  const std::vector<std::uint64_t> charges(128, kSize);
  for (const std::size_t room : {0, 1, 32, 64, 96, 115, 127, 128, 1000}) {
    const auto kept = pager::choose_kept(sequence(128), charges, room * kSize);
    CHECK_EQ(bytes_of(kept, charges), std::min<std::size_t>(room, 128) * kSize);
    // No run of kept or streamed tensors is more than one longer than it has to be.
    std::size_t longest = 0;
    std::size_t run = 0;
    for (const bool keeps : kept) longest = std::max(longest, run = keeps ? run + 1 : 0);
    if (room <= 64) CHECK(longest <= 1);
    if (room == 96) CHECK(longest <= 4);
  }
}

TEST(kept_tensors_never_exceed_the_room) {
  std::uint64_t random = 1;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint64_t> charges(1 + round % 40);
    std::uint64_t total = 0;
    for (std::uint64_t& charge : charges) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      charge = (random >> 40) % (1 << 21);
      total += charge;
    }
    std::vector<std::uint32_t> order = sequence(charges.size());
    order.push_back(0);
    const std::uint64_t room = total * (random >> 60) / 16;
    const auto kept = pager::choose_kept(order, charges, room);
    CHECK(bytes_of(kept, charges) <= room);
    // Nothing that is left out would have fitted.
    for (std::size_t i = 0; i < charges.size(); ++i) CHECK(kept[i] || bytes_of(kept, charges) + charges[i] > room);
  }
}

TEST(a_cycle_is_found_and_a_zigzag_is_none) {
  pager::CycleDetector cycle(10);
  for (int pass = 0; pass < 2; ++pass) {
    for (std::size_t i = 0; i < 10; ++i) cycle.add(i);
  }
  CHECK_EQ(cycle.period(), 10u);
  CHECK_EQ(cycle.matched(), 10u);
  CHECK(cycle.is_second_pass());
  CHECK(cycle.last_period() == sequence(10));

  pager::CycleDetector zigzag(10);
  for (int pass = 0; pass < 6; ++pass) {
    for (std::size_t i = 0; i < 10; ++i) {
      zigzag.add(pass % 2 == 0 ? i : 9 - i);
      CHECK(zigzag.matched() <= 1);
    }
  }
}

TEST(a_long_trace_of_other_tensors_is_forgotten) {
  pager::CycleDetector detector(2);  // remembers 72 acquires
  detector.add(1);
  for (int i = 0; i < 500; ++i) detector.add(0);
  detector.add(1);
  CHECK_EQ(detector.period(), 0u);
}

TEST(budgets_follow_the_memory_with_hysteresis) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  const std::uint64_t budget = pager::budget_from(10 * kGiB);
  CHECK(!pager::followed_budget(budget, 4 * kGiB, 6 * kGiB));       // nothing has changed
  CHECK(!pager::followed_budget(budget, 4 * kGiB, 11 * kGiB / 2));  // 5 % less
  CHECK(!pager::followed_budget(budget, 4 * kGiB, 8 * kGiB));       // 20 % more
  CHECK_EQ(pager::followed_budget(budget, 4 * kGiB, 4 * kGiB).value(), pager::budget_from(8 * kGiB));
  CHECK_EQ(pager::followed_budget(budget, 4 * kGiB, 9 * kGiB).value(), pager::budget_from(13 * kGiB));
  CHECK(!pager::followed_budget(budget, 4 * kGiB, kUnlimited));  // not known
}

TEST(least_recently_used_stays_exact_with_pins_and_holders) {
  for (const bool strict : {false, true}) {
    PagerOptions options = with_budget(500);
    options.strict = strict;
    Model model(12, 100, options);
    model.pager->pin(0);
    model.pager->acquire("0");
    ResidentTensor held = model.pager->acquire("1");
    for (const char* name : {"2", "3", "4"}) model.pager->acquire(name);
    model.pager->acquire("2");
    model.pager->acquire("5");  // 1 is the oldest: it goes unless the budget is strict, then 3
    CHECK(model.residents() == (strict ? Slots{0, 1, 2, 4, 5} : Slots{0, 2, 3, 4, 5}));
    held.release();
    model.pager->acquire("6");  // strict: 1 was released and is the oldest again
    CHECK(model.residents() == (Slots{0, 2, 4, 5, 6}));
    model.pager->unpin(0);
    model.pager->acquire("7");
    CHECK(model.residents() == (Slots{2, 4, 5, 6, 7}));
  }
}

TEST(handles_can_be_cloned) {
  Model model(2, 100, with_budget(100));
  ResidentTensor first = model.pager->acquire("0");
  const ResidentTensor second = first.clone();
  first.release();
  model.pager->acquire("1");
  CHECK_EQ(model.pager->live_bytes(), 200u);
  CHECK(text_of(second) == data_of(0, 100));
  CHECK(!first.clone());
}

TEST(raw_files_are_sources) {
  const test_files::TempDir dir;
  const std::string data = data_of(0, 300'000);
  test_files::write_file(dir / "raw", data);
  const NamedEntry entries[] = {{"a", {0, 100'000}}, {"b", {100'000, 200'000}}};
  for (const bool mapped : {false, true}) {
    PagerOptions options = with_budget(200'000);
    options.zero_copy = mapped;
    Pager pager(mapped ? raw_mapped_file(dir / "raw") : raw_file(dir / "raw"), entries, options);
    for (int pass = 0; pass < 2; ++pass) {
      CHECK(text_of(pager.acquire("a")) == data.substr(0, 100'000));
      CHECK(text_of(pager.acquire("b")) == data.substr(100'000));
    }
    CHECK_EQ(pager.stats().evictions, 3u);
    const NamedEntry beyond[] = {{"c", {300'000, 1}}};
    CHECK_THROWS(OffloadEof, Pager(raw_file(dir / "raw"), beyond));
  }
  CHECK_THROWS(Error, raw_file(dir / "nothing"));
}

TEST(threads_with_a_policy_stay_within_a_strict_budget) {
  PagerOptions options = with_budget(800);
  options.strict = true;
  options.policy = EvictionPolicy::kCyclic;
  options.window = 300;
  Model model(16, 100, options);
  std::vector<std::jthread> threads;
  for (std::size_t first = 0; first < 4; ++first) {
    threads.emplace_back([&, first] {
      for (std::size_t i = 0; i < 2000; ++i) {
        const std::size_t tensor = (4 * first + i) % 16;
        const ResidentTensor held = model.pager->acquire(tensor);
        CHECK(text_of(held) == data_of(tensor, 100));
        CHECK(model.pager->live_bytes() <= 800);
      }
    });
  }
}
