// When huge pages are worth what they cost.

#include "io/page_costs.h"

#include <chrono>

#include "check.h"

using weightstore::io::PageCosts;
using namespace std::chrono_literals;

TEST(quick_pages_never_cost_too_much) {
  PageCosts costs;
  for (int i = 0; i < 100'000; ++i) CHECK(!costs.add(100us));
  CHECK(!costs.are_too_high());
}

TEST(a_few_slow_pages_among_quick_ones_are_cheaper_than_small_pages) {
  PageCosts costs;
  for (int i = 0; i < 1'000; ++i) CHECK(!costs.add(i % 10 == 0 ? 3ms : 180us));
  CHECK(!costs.are_too_high());
}

TEST(pages_that_are_all_slow_cost_too_much_soon) {
  PageCosts costs;
  int count = 0;
  while (!costs.add(3ms)) ++count;
  CHECK(count < 4);
  CHECK(costs.are_too_high());
}

TEST(what_was_saved_long_ago_does_not_pay_for_much) {
  PageCosts costs;
  for (int i = 0; i < 100'000; ++i) costs.add(100us);
  int count = 0;
  while (!costs.add(3ms)) ++count;
  CHECK(count < 8);
}

TEST(one_very_slow_page_is_enough) {
  PageCosts costs;
  CHECK(costs.add(200ms));
}

TEST(only_one_call_learns_that_they_cost_too_much) {
  PageCosts costs;
  CHECK(costs.add(1s));
  CHECK(!costs.add(1s));
  CHECK(!costs.add(1us));
  CHECK(costs.are_too_high());
}

RUN_TESTS()
