#pragma once

// What targets have in common.

#include <cstdlib>

#include "weightstore/error.h"

inline void require(bool condition) {
  if (!condition) std::abort();
}

// What a file may be refused with; any other error is a finding.
inline bool expected(const weightstore::Error& error) {
  using weightstore::ErrorCode;
  return error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kLimit ||
         error.code() == ErrorCode::kUnsupported;
}
