#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pager/policy/cycle_detector.h"
#include "pager/policy/policy.h"

namespace weightstore::pager {

// For tensors that are acquired in the same order again and again, as the layers of a model are: keeps as many as there
// is room for, spread over the order, and expects the others in their turn, the beginning after the end.
//
// The order is learned. It counts as known when it has come twice; and also, once, a few acquires after the very first
// pass. Acquires out of order do not change what is kept: the policy goes on from where the caller is. It gives the
// order up when most of the acquires of a whole period were not the expected ones. An order that is given from the
// beginning is never given up.
class CyclicPolicy final : public Policy {
 public:
  // `order` is empty when it shall be learned.
  CyclicPolicy(std::vector<std::uint64_t> charges, std::vector<std::uint32_t> order);

  Step acquired(std::size_t tensor) override;
  void set_room(std::uint64_t bytes, std::vector<bool> pinned) override;
  const std::vector<bool>& kept() const override { return kept_; }
  std::size_t horizon() const override { return order_.size(); }
  std::size_t expected(std::size_t ahead) const override { return order_[(next_ + ahead) % order_.size()]; }
  std::size_t distance(std::size_t tensor) const override;
  std::string describe() const override;

 private:
  bool has_new_order();
  void choose();
  void set_order(std::vector<std::uint32_t> order);
  // Goes to the position after this tensor. False when the tensor was not the expected one.
  bool follow(std::size_t tensor);

  const std::vector<std::uint64_t> charges_;
  const bool learns_;
  bool may_guess_ = true;  // the first pass is not over
  CycleDetector detector_;
  std::uint64_t room_ = 0;
  std::vector<bool> pinned_;
  std::vector<bool> kept_;
  std::vector<std::uint32_t> order_;
  std::size_t next_ = 0;  // the position that is expected next
  // The positions of tensor i are positions_[begin_[i]] to positions_[begin_[i + 1] - 1], in ascending order.
  std::vector<std::uint32_t> begin_;
  std::vector<std::uint32_t> positions_;
  // Since the last look, which comes once a period.
  std::size_t acquires_ = 0;
  std::size_t surprises_ = 0;
};

}  // namespace weightstore::pager
