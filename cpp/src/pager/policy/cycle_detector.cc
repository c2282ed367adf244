#include "pager/policy/cycle_detector.h"

namespace weightstore::pager {

CycleDetector::CycleDetector(std::size_t tensors) : history_(4 * tensors + 64), last_(tensors) {}

void CycleDetector::add(std::size_t tensor) {
  if (period_ != 0 && at(count_ - period_) == tensor) {
    ++matched_;
  } else {
    const std::uint64_t ago = count_ + 1 - last_[tensor];
    const bool known = last_[tensor] != 0 && ago < history_.size();
    period_ = known ? static_cast<std::size_t>(ago) : 0;
    matched_ = known ? 1 : 0;
  }
  history_[count_ % history_.size()] = static_cast<std::uint32_t>(tensor);
  last_[tensor] = ++count_;
}

std::vector<std::uint32_t> CycleDetector::last_period() const {
  std::vector<std::uint32_t> order;
  order.reserve(period_);
  for (std::uint64_t i = count_ - period_; i < count_; ++i) order.push_back(at(i));
  return order;
}

}  // namespace weightstore::pager
