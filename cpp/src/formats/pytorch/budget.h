#pragma once

#include <cstdint>

#include "weightstore/error.h"

namespace weightstore::pytorch {

// What a pickle may unfold to. Its parts may be shared, so that going over all
// of them by name takes far more than its bytes; a constant and a multiple of
// what the pickle itself holds are more than any model needs.
class Budget {
 public:
  Budget(std::uint64_t constant, std::uint64_t factor, std::uint64_t size) : left_(constant + factor * size) {}

  void spend(std::uint64_t amount = 1) {
    if (amount > left_) {
      throw Error(ErrorCode::kLimit,
                  "the object repeats its parts so often "
                  "that it unfolds without measure");
    }
    left_ -= amount;
  }

 private:
  std::uint64_t left_;
};

}  // namespace weightstore::pytorch
