#pragma once

// Which tensors the pager keeps in memory, and which it reads ahead.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "weightstore/pager.h"

namespace weightstore::pager {

// Learns from the order of acquires. Without a policy the pager evicts the least recently used tensor and reads nothing
// ahead; so it does with a policy that expects nothing. The caller holds the pager's mutex.
class Policy {
 public:
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

  enum class Step : std::uint8_t {
    kExpected,  // the acquire was the expected one
    kDeviated,  // another tensor was expected: what was read ahead may be useless
    kReplanned  // what the policy keeps and expects has changed
  };

  virtual ~Policy() = default;

  // A caller acquires this tensor.
  virtual Step acquired(std::size_t tensor) = 0;
  // How many bytes of memory the policy may keep, counting charges; and by tensor, which are pinned. Pinned tensors
  // stay in memory anyway, and take none of that.
  virtual void set_room(std::uint64_t bytes, std::vector<bool> pinned) = 0;
  // By tensor, whether it is kept: evicted only when nothing else makes room. A tensor that is kept is loaded when it
  // is expected, not before.
  virtual const std::vector<bool>& kept() const = 0;

  // How many acquires the policy expects, and which tensor the one after `ahead` others is for.
  virtual std::size_t horizon() const = 0;
  virtual std::size_t expected(std::size_t ahead) const = 0;
  // After how many other acquires the tensor is expected; kNever when it is not.
  virtual std::size_t distance(std::size_t tensor) const = 0;

  virtual std::string describe() const = 0;
};

// Null for the least recently used order. `charges` has the memory that each tensor takes; `order` is that of
// EvictionPolicy::kSchedule.
std::unique_ptr<Policy> make_policy(EvictionPolicy kind, std::vector<std::uint64_t> charges,
                                    std::vector<std::uint32_t> order);

}  // namespace weightstore::pager
