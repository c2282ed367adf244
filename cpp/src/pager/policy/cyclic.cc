#include "pager/policy/cyclic.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "pager/policy/kept_set.h"

namespace weightstore::pager {
namespace {

// So many acquires must be as one period earlier before the policy believes in it. In the second pass that is enough to
// guess that all will be.
constexpr std::size_t kLeastMatches = 3;

}  // namespace

CyclicPolicy::CyclicPolicy(std::vector<std::uint64_t> charges, std::vector<std::uint32_t> order)
    : charges_(std::move(charges)), learns_(order.empty()), detector_(charges_.size()), pinned_(charges_.size()) {
  set_order(std::move(order));
}

void CyclicPolicy::set_room(std::uint64_t bytes, std::vector<bool> pinned) {
  room_ = bytes;
  pinned_ = std::move(pinned);
  choose();
}

void CyclicPolicy::choose() {
  std::vector<std::uint32_t> loose;
  std::copy_if(order_.begin(), order_.end(), std::back_inserter(loose), [&](auto tensor) { return !pinned_[tensor]; });
  kept_ = choose_kept(loose, charges_, room_);
}

void CyclicPolicy::set_order(std::vector<std::uint32_t> order) {
  order_ = std::move(order);
  next_ = acquires_ = surprises_ = 0;
  // A cycle has no beginning. Take always the same one, so that the same cycle always keeps the same tensors.
  if (const auto first = std::min_element(order_.begin(), order_.end()); learns_ && first != order_.end()) {
    next_ = static_cast<std::size_t>(order_.end() - first) % order_.size();
    std::rotate(order_.begin(), first, order_.end());
  }
  begin_.assign(charges_.size() + 1, 0);
  for (const std::uint32_t tensor : order_) ++begin_[tensor + 1];
  for (std::size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
  positions_.resize(order_.size());
  std::vector<std::uint32_t> end(begin_.begin(), begin_.end() - 1);
  for (std::size_t i = 0; i < order_.size(); ++i) positions_[end[order_[i]]++] = static_cast<std::uint32_t>(i);
  choose();
}

std::size_t CyclicPolicy::distance(std::size_t tensor) const {
  const auto first = positions_.begin() + begin_[tensor];
  const auto last = positions_.begin() + begin_[tensor + 1];
  if (first == last) return kNever;
  const auto after = std::lower_bound(first, last, next_);
  return after != last ? *after - next_ : *first + order_.size() - next_;
}

bool CyclicPolicy::has_new_order() {
  const std::size_t period = detector_.period();
  const std::size_t matched = detector_.matched();
  if (period == 0 || matched < kLeastMatches) return false;
  if (may_guess_ && detector_.is_second_pass()) return true;
  if (matched < period || matched % period != 0) return false;
  // The order in use is the same one if it predicted every acquire. To replace it takes as many acquires as it has: the
  // beginning of a pass that is given up twice is not a new order.
  return order_.empty() || (surprises_ > 0 && matched >= order_.size());
}

Policy::Step CyclicPolicy::acquired(std::size_t tensor) {
  const bool was_expected = follow(tensor);
  if (!learns_) return was_expected ? Step::kExpected : Step::kDeviated;
  detector_.add(tensor);
  if (has_new_order()) {
    may_guess_ = false;
    // The order begins with what comes next: the acquires so far are the end of the period.
    set_order(detector_.last_period());
    return Step::kReplanned;
  }
  if (order_.empty()) return Step::kExpected;
  if (++acquires_ >= order_.size()) {
    const bool is_lost = surprises_ > order_.size() / 2;
    if (is_lost) {
      set_order({});
      return Step::kReplanned;
    }
    acquires_ = surprises_ = 0;
  }
  return was_expected ? Step::kExpected : Step::kDeviated;
}

bool CyclicPolicy::follow(std::size_t tensor) {
  if (order_.empty()) return true;
  const bool was_expected = order_[next_] == tensor;
  if (!was_expected) {
    ++surprises_;
    const std::size_t skipped = distance(tensor);
    if (skipped == kNever) return false;
    next_ = (next_ + skipped) % order_.size();
  }
  next_ = (next_ + 1) % order_.size();
  return was_expected;
}

std::string CyclicPolicy::describe() const {
  const std::string kind = learns_ ? "cyclic" : "schedule";
  if (order_.empty()) return kind + ", learning the order";
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    if (!kept_[i]) continue;
    ++count;
    bytes += charges_[i];
  }
  return kind + ", period " + std::to_string(order_.size()) + ", keeps " + std::to_string(count) + " tensors (" +
         std::to_string(bytes) + " bytes)";
}

std::unique_ptr<Policy> make_policy(EvictionPolicy kind, std::vector<std::uint64_t> charges,
                                    std::vector<std::uint32_t> order) {
  if (kind == EvictionPolicy::kLru) return nullptr;
  return std::make_unique<CyclicPolicy>(std::move(charges), std::move(order));
}

}  // namespace weightstore::pager
