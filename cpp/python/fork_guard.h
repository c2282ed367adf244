#pragma once

#include "weightstore/pager.h"

namespace weightstore::python {

// While it lives, a fork(2) of this process waits until nobody is changing the pager, and copies it whole. Done inside
// of fork(2), where no Python code runs: a thread that had the GIL then could wait for the pager, and the one that
// forks for the GIL.
class ForkGuard {
 public:
  explicit ForkGuard(Pager& pager);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  Pager& pager_;
};

}  // namespace weightstore::python
