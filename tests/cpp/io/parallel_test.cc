#include "io/parallel.h"

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "io/progress_meter.h"
#include "weightstore/error.h"

using namespace weightstore;

namespace {

struct Report {
  std::uint64_t done;
  std::uint64_t total;
  std::string name;
  bool operator==(const Report&) const = default;
};

}  // namespace

TEST(every_index_comes_once) {
  for (const std::size_t count : {0, 1, 2, 7, 1000}) {
    for (const unsigned threads : {0u, 1u, 2u, 5u, 2000u}) {
      std::vector<std::atomic<int>> calls(count);
      io::parallel_for(count, threads, [&](std::size_t i) { ++calls[i]; });
      for (const auto& n : calls) CHECK_EQ(n.load(), 1);
    }
  }
}

TEST(workers_have_numbers_below_the_number_of_threads) {
  io::parallel_for(100, 3, [](std::size_t, const io::Worker& worker) { CHECK(worker.number < 3); });
  // No more threads than there is to do.
  io::parallel_for(2, 50, [](std::size_t, const io::Worker& worker) { CHECK(worker.number < 2); });
}

TEST(the_calling_thread_is_the_first_worker_unless_it_watches) {
  std::atomic<int> calls = 0;
  const auto is_caller = [caller = std::this_thread::get_id()] { return std::this_thread::get_id() == caller; };
  io::run_parallel(3, [&](unsigned worker, const io::StopFlag&) {
    CHECK_EQ(worker == 0, is_caller());
    ++calls;
  });
  CHECK_EQ(calls.load(), 3);
  const auto other = [&](unsigned, const io::StopFlag&) { CHECK(!is_caller()); };
  io::run_parallel(2, other, [&] { CHECK(is_caller()); });
  io::run_parallel(0, [&](unsigned, const io::StopFlag&) { CHECK(false); });
}

TEST(one_thread_is_the_callers) {
  std::set<std::thread::id> threads;
  io::parallel_for(10, 1, [&](std::size_t) { threads.insert(std::this_thread::get_id()); });
  CHECK(threads == std::set{std::this_thread::get_id()});
}

TEST(the_first_error_stops_the_others) {
  for (const unsigned threads : {1u, 4u}) {
    std::atomic<int> calls = 0;
    const auto work = [&](std::size_t i, const io::Worker& worker) {
      ++calls;
      if (i == 3) throw Error(ErrorCode::kIo, "three");
      while (i > 3 && !worker.stop.is_set()) std::this_thread::yield();
    };
    CHECK_EQ(CHECK_THROWS(Error, io::parallel_for(1'000'000, threads, work)).message(), "three");
    CHECK(calls < 10);
  }
}

TEST(an_error_of_the_watch_stops_the_workers) {
  const auto work = [](std::size_t, const io::Worker& worker) {
    while (!worker.stop.is_set()) std::this_thread::yield();
  };
  const auto watch = [] { throw Error(ErrorCode::kCancelled, "enough"); };
  CHECK_EQ(CHECK_THROWS(Error, io::parallel_for(5, 1, work, watch)).message(), "enough");
}

TEST(parts_are_one_scale_of_progress) {
  std::vector<Report> reports;
  const Progress progress = [&](std::uint64_t done, std::uint64_t total, std::string_view name) {
    reports.push_back({done, total, std::string(name)});
    return true;
  };
  io::ProgressMeter meter(progress, 30, "cancelled");
  const Progress first = meter.reporting(10);
  first(0, 14, "a");  // four bytes of header, which do not count
  first(3, 14, "a");
  first(9, 14, "a");
  first(14, 14, "a");
  const Progress other_thread = meter.counting(15);
  other_thread(15, 15, "b");
  meter.add(5, "c");
  meter.report();  // everything, but not the end
  meter.report_total();
  const std::vector<Report> expected = {{0, 30, "a"},  {0, 30, "a"},  {5, 30, "a"},
                                        {10, 30, "a"}, {29, 30, "c"}, {30, 30, "c"}};
  CHECK(reports == expected);
}

TEST(a_part_may_say_late_how_large_it_is) {
  std::vector<Report> reports;
  const Progress progress = [&](std::uint64_t done, std::uint64_t total, std::string_view name) {
    reports.push_back({done, total, std::string(name)});
    return true;
  };
  io::ProgressMeter meter(progress, 6, "cancelled");
  const Progress part = meter.reporting();
  part(1, 4, "a");
  part(4, 4, "b");
  meter.add(6, "c");
  meter.report_finished();
  const std::vector<Report> expected = {{1, 10, "a"}, {4, 10, "b"}, {10, 10, "c"}};
  CHECK(reports == expected);
}

TEST(a_meter_is_cancelled_by_its_message) {
  const Progress stop = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
  io::ProgressMeter meter(stop, 0, "counting was cancelled");
  const Error error = CHECK_THROWS(Error, meter.report());
  CHECK(error.code() == ErrorCode::kCancelled);
  CHECK_EQ(error.message(), "counting was cancelled");
  CHECK_THROWS(Error, meter.reporting(0)(0, 0, "a"));
  CHECK_THROWS(Error, meter.report_total());
  meter.report_finished();  // too late to cancel
  const Progress nobody;
  io::ProgressMeter silent(nobody, 1, "cancelled");
  silent.reporting(1)(1, 1, "a");
  silent.report_total();
  silent.report_finished();
}

RUN_TESTS()
