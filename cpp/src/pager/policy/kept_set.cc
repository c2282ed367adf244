#include "pager/policy/kept_set.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <utility>

namespace weightstore::pager {
namespace {

class Chooser {
 public:
  Chooser(std::span<const std::uint64_t> charges, std::uint64_t room)
      : charges_(charges), room_(room), kept_(charges.size()) {}

  std::uint64_t room() const { return room_; }
  std::uint64_t sum_of(const std::vector<std::uint32_t>& tensors) const {
    std::uint64_t sum = 0;
    for (const std::uint32_t tensor : tensors) sum += charges_[tensor];
    return sum;
  }

  void keep_all(const std::vector<std::uint32_t>& tensors) {
    for (const std::uint32_t tensor : tensors) keep(tensor);
  }

  // Fills the room with tensors that are as evenly spaced as their sizes allow.
  void keep_spaced(const std::vector<std::uint32_t>& tensors) {
    const double share = static_cast<double>(room_) / static_cast<double>(sum_of(tensors));
    double passed = 0;  // bytes up to here
    double taken = 0;   // of them, those that are kept
    for (const std::uint32_t tensor : tensors) {
      const auto size = static_cast<double>(charges_[tensor]);
      passed += size;
      if (taken + size / 2 > passed * share || charges_[tensor] > room_) continue;
      keep(tensor);
      taken += size;
    }
    for (const std::uint32_t tensor : tensors) {  // what rounding has left
      if (!kept_[tensor] && charges_[tensor] <= room_) keep(tensor);
    }
  }

  std::vector<bool> result() && { return std::move(kept_); }

 private:
  void keep(std::uint32_t tensor) {
    kept_[tensor] = true;
    room_ -= charges_[tensor];
  }

  std::span<const std::uint64_t> charges_;
  std::uint64_t room_;
  std::vector<bool> kept_;
};

}  // namespace

std::vector<bool> choose_kept(std::span<const std::uint32_t> order, std::span<const std::uint64_t> charges,
                              std::uint64_t room) {
  std::vector<std::uint32_t> uses(charges.size());
  std::uint64_t small_bytes = 0;
  for (const std::uint32_t tensor : order) {
    if (uses[tensor]++ == 0 && charges[tensor] < kSmallTensor) small_bytes += charges[tensor];
  }
  const bool small_first = small_bytes <= room / 8;

  // Groups of tensors that are worth the same, the most valuable group first; each in the order of first use.
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  std::map<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> groups;
  for (const std::uint32_t tensor : order) {
    if (uses[tensor] == 0) continue;
    groups[small_first && charges[tensor] < kSmallTensor ? kMost : uses[tensor]].push_back(tensor);
    uses[tensor] = 0;
  }

  Chooser chooser(charges, room);
  for (const auto& [count, group] : groups) {
    if (chooser.sum_of(group) <= chooser.room()) {
      chooser.keep_all(group);
    } else {
      chooser.keep_spaced(group);
    }
  }
  return std::move(chooser).result();
}

}  // namespace weightstore::pager
