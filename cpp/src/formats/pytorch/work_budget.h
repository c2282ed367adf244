#pragma once

#include <cstdint>
#include <string>

#include "weightstore/error.h"

namespace weightstore::pytorch {

// How many steps going over a saved object may take. Its parts may be shared, so that reaching all of them by all of
// their names takes far more than there are bytes; a model needs about one step for a value.
class WorkBudget {
 public:
  explicit WorkBudget(std::uint64_t pickle_bytes)
      : pickle_bytes_(pickle_bytes), allowed_(kConstant + kPerByte * pickle_bytes), left_(allowed_) {}

  void spend(std::uint64_t amount = 1) {
    if (amount > left_) refuse(amount);
    left_ -= amount;
  }

 private:
  static constexpr std::uint64_t kConstant = 1u << 16;
  static constexpr std::uint64_t kPerByte = 16;

  [[noreturn]] void refuse(std::uint64_t amount) const {
    throw Error(ErrorCode::kLimit, "the object repeats its parts so often that going over them takes " +
                                       std::to_string(allowed_ - left_ + amount) + " steps or more; a pickle of " +
                                       std::to_string(pickle_bytes_) + " bytes may take " + std::to_string(allowed_));
  }

  const std::uint64_t pickle_bytes_;
  const std::uint64_t allowed_;
  std::uint64_t left_;
};

}  // namespace weightstore::pytorch
