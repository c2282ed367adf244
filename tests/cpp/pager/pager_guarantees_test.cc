// Guarantees that a simple pager easily breaks, one per test. pager_threads_test.cc tests the first five under load.

#include <algorithm>
#include <thread>

#include "check.h"
#include "io/file_source.h"
#include "pager/default_budget.h"
#include "pager_sources.h"

using namespace weightstore;
using namespace pager_sources;

namespace {

template <class Work>
void on_threads(unsigned count, Work work) {
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < count; ++t) threads.emplace_back([&work, t] { work(t); });
}

}  // namespace

TEST(a_hit_overtaken_by_an_eviction_leaves_no_ghost) {
  Model model(8, 10, with_budget(30));
  on_threads(4, [&](unsigned t) {
    for (std::size_t k = 0; k < 20'000; ++k) model.pager->acquire((k * 7 + t * 3) % 8);
  });
  CHECK_EQ(model.pager->resident_count(), 3u);
  CHECK_EQ(model.pager->resident_bytes(), 30u);
  for (std::size_t i = 0; i < 8; ++i) model.pager->acquire(i);
  CHECK(model.residents() == (Slots{5, 6, 7}));
}

TEST(callers_that_miss_together_share_one_read) {
  Model model(1, 1000, {});
  Gate gate;
  model.source->before_read = [&](std::uint64_t, std::size_t) { gate.pass(); };
  std::vector<const std::byte*> addresses(4);
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const ResidentTensor tensor = model.pager->acquire("0");
        addresses[t] = tensor.bytes().data();
      });
    }
    gate.wait_for(1);
    while (model.pager->stats().coalesced_waits < 3) std::this_thread::yield();
    gate.open();
  }
  CHECK_EQ(model.source->reads(), 1u);
  CHECK_EQ(model.pager->resident_bytes(), 1000u);
  CHECK_EQ(model.pager->live_bytes(), 1000u);
  CHECK_EQ(std::count(addresses.begin(), addresses.end(), addresses[0]), 4);
  CHECK_EQ(model.pager->stats().misses, 1u);
}

TEST(callers_that_miss_together_do_not_overshoot) {
  Model model(8, 1000, with_budget(2000));
  Gate gate;
  model.source->before_read = [&](std::uint64_t, std::size_t) { gate.pass(); };
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < 8; ++t) threads.emplace_back([&, t] { model.pager->acquire(std::size_t{t}); });
  gate.wait_for(8);  // all have reserved, none has published
  CHECK_EQ(model.pager->resident_bytes(), 0u);
  CHECK_EQ(model.pager->live_bytes(), 8000u);
  gate.open();
  threads.clear();
  CHECK_EQ(model.pager->resident_bytes(), 2000u);
  CHECK_EQ(model.pager->live_bytes(), 2000u);
}

TEST(the_account_never_wraps) {
  Model model(6, 10, with_budget(20));
  std::atomic<bool> stop = false;
  std::atomic<bool> wrapped = false;
  std::jthread watcher([&] {
    while (!stop) {
      if (model.pager->resident_bytes() > 20 || model.pager->live_bytes() > 10'000) wrapped = true;
    }
  });
  on_threads(3, [&](unsigned t) {
    for (std::size_t k = 0; k < 5'000; ++k) model.pager->acquire((k + 2 * t) % 6);
  });
  stop = true;
  watcher.join();
  CHECK(!wrapped);
}

TEST(a_tensor_has_one_age) {
  Model model(3, 10, with_budget(20));
  on_threads(4, [&](unsigned) { model.pager->acquire("0"); });
  model.pager->acquire("1");
  model.pager->acquire("0");
  model.pager->acquire("2");
  CHECK(model.residents() == (Slots{0, 2}));
}

TEST(what_is_held_is_counted_and_not_read_again) {
  Model model(4, 50, with_budget(50));
  std::vector<ResidentTensor> held;
  for (std::size_t i = 0; i < 4; ++i) held.push_back(model.pager->acquire(i));
  CHECK_EQ(model.pager->resident_bytes(), 50u);
  CHECK_EQ(model.pager->live_bytes(), 200u);
  model.pager->acquire("0");
  CHECK_EQ(model.source->reads(), 4u);
}

TEST(a_read_that_fails_evicts_nothing) {
  Model model(3, 50, with_budget(100));
  model.pager->acquire("0");
  model.pager->acquire("1");
  bool fail = true;
  model.source->before_read = [&](std::uint64_t, std::size_t) {
    if (fail) throw Error(ErrorCode::kIo, "cannot read").with_errno(EIO);
  };
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Error error = CHECK_THROWS(Error, model.pager->acquire("2"));
    CHECK_EQ(error.os_errno(), EIO);
    CHECK_EQ(error.tensor(), "2");
    CHECK_EQ(error.path(), "<counting>");
  }
  CHECK(model.residents() == (Slots{0, 1}));
  CHECK_EQ(model.pager->live_bytes(), 100u);
  CHECK_EQ(model.pager->stats().load_errors, 3u);
  fail = false;
  model.pager->acquire("2");
  CHECK(model.residents() == (Slots{1, 2}));
}

TEST(a_victim_is_found_without_looking_at_everything) {
  // The order of eviction is exact with as many slots as a mixture of experts has, and no quadratic work is done.
  constexpr std::size_t kCount = 46'000;
  Model model(kCount, 1, with_budget(kCount / 2));
  for (std::size_t i = 0; i < kCount / 2; ++i) model.pager->acquire(i);
  for (std::size_t i = 0; i < kCount / 2; i += 2) model.pager->acquire(i);
  for (std::size_t i = kCount / 2; i < kCount / 2 + kCount / 4; ++i) model.pager->acquire(i);
  for (std::size_t i = 0; i < kCount / 2; ++i) CHECK_EQ(model.pager->is_resident(i), i % 2 == 0);
}

TEST(buffers_are_used_again) {
  constexpr std::size_t kSize = 256 << 10;
  Model model(6, kSize, with_budget(2 * kSize));
  std::vector<const std::byte*> addresses;
  for (int pass = 0; pass < 3; ++pass) {
    for (std::size_t i = 0; i < 6; ++i) addresses.push_back(model.pager->acquire(i).bytes().data());
  }
  std::sort(addresses.begin(), addresses.end());
  const auto distinct = std::unique(addresses.begin(), addresses.end()) - addresses.begin();
  CHECK_EQ(distinct, 3);  // two resident, and one on its way
  CHECK_EQ(model.pager->stats().peak_live_bytes, 3 * kSize);
}

TEST(a_file_that_is_replaced_is_still_the_one_that_was_opened) {
  const test_files::TempDir dir;
  test_files::write_file(dir / "raw", contents(2, 100));
  Pager pager(io::open_file(dir / "raw", false, io::system_file_ops()), entries(2, 100), with_budget(100));
  pager.acquire("0");
  test_files::write_file(dir / "new", std::string(50, 'x'));
  std::filesystem::rename(dir / "new", dir / "raw");
  CHECK_EQ(text_of(pager.acquire("1")), data_of(1, 100));
}

TEST(a_mapped_file_is_not_copied) {
  const test_files::TempDir dir;
  test_files::write_file(dir / "raw", contents(2, 10'000));
  const auto source = io::open_file(dir / "raw", true, io::system_file_ops());
  PagerOptions options = with_budget(10'000);
  options.zero_copy = true;
  Pager pager(source, entries(2, 10'000), options);
  const ResidentTensor first = pager.acquire("0");
  CHECK(first.bytes().data() == source->view(0, 1)->bytes.data());
  CHECK_EQ(text_of(pager.acquire("1")), data_of(1, 10'000));
  CHECK(!pager.is_resident(0));
  CHECK_EQ(text_of(first), data_of(0, 10'000));
}

TEST(the_caller_can_hold_a_part_of_a_cycle) {
  // Least recently used is the worst order for a cycle; what is pinned is nevertheless read once.
  Model model(4, 10, with_budget(30, {"0", "1"}));
  for (int pass = 0; pass < 5; ++pass) {
    for (std::size_t i = 0; i < 4; ++i) model.pager->acquire(i);
  }
  CHECK_EQ(model.pager->stats(0).loads + model.pager->stats(1).loads, 2u);
  CHECK_EQ(model.pager->stats().loads, 2u + 2 * 5u);
  CHECK_EQ(model.pager->stats().pass_count, 4u);
}

TEST(reading_goes_on_while_the_caller_works) {
  Model model(3, 10, {});
  model.pager->acquire("0");
  model.pager->prefetch(Slots{1, 2});
  model.pager->finish_prefetch();
  CHECK(model.residents() == (Slots{0, 1, 2}));
  model.pager->acquire("1");
  CHECK_EQ(model.pager->stats().misses, 1u);
  CHECK_EQ(model.pager->stats().prefetch_used, 1u);
}

TEST(all_bad_entries_are_named_at_once) {
  const auto source = std::make_shared<CountingSource>(std::string(100, 'x'));
  std::vector<NamedEntry> map = {{"good", {0, 100}}, {"long", {50, 51}}, {"far", {101, 0}}, {"wrap", {8, ~0ull}}};
  const OffloadEof error = CHECK_THROWS(OffloadEof, Pager(source, map));
  CHECK_EQ(error.tensor(), "long");
  CHECK_EQ(*error.offset(), 50u);
  CHECK_EQ(error.needed(), 51u);
  CHECK_EQ(error.available(), 50u);
  CHECK(std::string(error.what()).find("'far'") != std::string::npos);
  CHECK(std::string(error.what()).find("'wrap'") != std::string::npos);
  CHECK(std::string(error.what()).find("'good'") == std::string::npos);

  const Error pinned = CHECK_THROWS(Error, Pager(source, {map.data(), 1}, with_budget(1, {"a", "good", "b"})));
  CHECK(pinned.code() == ErrorCode::kNotFound);
  CHECK(std::string(pinned.what()).find("'a', 'b'") != std::string::npos);

  // A source may claim any size; what is to be read from it must fit into memory.
  class Endless final : public ByteSource {
   public:
    std::uint64_t size() const override { return ~0ull; }
    void read_at(std::uint64_t, MutableBytes out) const override { std::fill(out.begin(), out.end(), std::byte{1}); }
    std::string name() const override { return "<endless>"; }
  };
  map = {{"all", {0, ~0ull}}};
  CHECK(CHECK_THROWS(Error, Pager(std::make_shared<Endless>(), map)).code() == ErrorCode::kLimit);

  map = {{"twice", {0, 1}}, {"twice", {1, 1}}};
  CHECK(CHECK_THROWS(Error, Pager(source, map)).code() == ErrorCode::kInvalidArgument);
}

TEST(the_automatic_budget_keeps_a_reserve) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  CHECK_EQ(pager::budget_from(10 * kGiB), 9 * kGiB);
  CHECK_EQ(pager::budget_from(kGiB), kGiB - kGiB / 4);
  CHECK_EQ(pager::budget_from(100), 50u);
  CHECK_EQ(pager::budget_from(kUnlimited), kUnlimited);
  CHECK(automatic_budget() > 0);
}

TEST(more_than_the_budget_is_visible) {
  Model model(3, 50, with_budget(60, {"0", "1"}));
  CHECK_EQ(model.pager->over_budget_bytes(), 0u);
  for (std::size_t i = 0; i < 3; ++i) model.pager->acquire(i);
  CHECK_EQ(model.pager->over_budget_bytes(), 90u);
  CHECK_EQ(model.pager->stats().over_budget_events, 2u);
}

RUN_TESTS()
