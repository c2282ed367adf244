#pragma once

// Remainders across the gaps between the runs of a box.

#include <cstdint>
#include <vector>

#include "base/crc32c_parts.h"

namespace weightstore {

// The gaps between the short runs of a box have few different sizes: one for each dimension.
class GapTables {
 public:
  std::uint32_t extend(std::uint32_t remainder, std::uint64_t count) {
    if (count == 0) return remainder;
    for (const ZeroBytes& known : tables_) {
      if (known.count() == count) return known.extend(remainder);
    }
    // A table pays when it is used a few hundred times.
    if (++misses_ < kMisses) return extend_remainder(remainder, count);
    misses_ = 0;
    if (tables_.size() == kTables) tables_.pop_back();
    tables_.insert(tables_.begin(), ZeroBytes(count));
    return tables_.front().extend(remainder);
  }

 private:
  static constexpr std::size_t kTables = 4;
  static constexpr int kMisses = 8;
  std::vector<ZeroBytes> tables_;
  int misses_ = 0;
};

}  // namespace weightstore
