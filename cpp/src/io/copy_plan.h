#pragma once

// How parallel_copy() divides its ranges into units of work.

#include <cstdint>
#include <span>
#include <vector>

#include "io/parallel_copy.h"

namespace weightstore::io {

// The piece of one range that lies inside one window. A window is kChunkBytes of a source, aligned.
struct CopyPiece {
  std::uint64_t offset;  // in the source
  std::byte* out;
  std::uint32_t length;  // not 0
  std::uint32_t range;

  std::uint64_t end() const { return offset + length; }
};

struct CopyPlan {
  std::vector<CopyPiece> pieces;     // ascending by (source, offset)
  std::vector<std::size_t> windows;  // the first piece of each window, then pieces.size()
  std::uint64_t total_bytes = 0;

  std::size_t window_count() const { return windows.size() - 1; }
  std::span<const CopyPiece> window(std::size_t i) const {
    return std::span(pieces).subspan(windows[i], windows[i + 1] - windows[i]);
  }
};

// Throws Error(kIo) that names the tensor when a range ends after its source.
CopyPlan plan_copy(std::span<const CopyRange> ranges);

}  // namespace weightstore::io
