#pragma once

// The values of new rows.

#include <cstdint>
#include <vector>

#include "weightstore/hash_table.h"

namespace weightstore::table {

// An Initializer prepared for one slot. Immutable and thread-safe.
class RowInitializer {
 public:
  // Throws Error(kInvalidArgument) or Error(kUnsupported) when the type of the slot cannot represent such values.
  RowInitializer(const SlotInfo& slot, const Initializer& initializer);

  void fill(std::int64_t id, std::byte* row) const;

 private:
  void check(const SlotInfo& slot) const;
  double uniform(std::uint64_t key, std::uint64_t counter) const;
  double truncated(std::uint64_t key, std::uint64_t element) const;

  Initializer initializer_;
  DType dtype_;
  std::uint64_t elements_;
  std::size_t element_bytes_;
  std::vector<std::byte> constant_;  // a whole row; empty for a random initializer
  double least_ = 0;                 // the bounds of uniform values, rounded to the type
  double most_ = 0;
};

}  // namespace weightstore::table
