#pragma once

// How parallel_copy() cuts its jobs into units of work.

#include <cstdint>
#include <span>
#include <vector>

#include "io/parallel_copy.h"

namespace weightstore::io {

// A part of one job that lies inside one window: an aligned range of kBlockBytes of its source.
struct CopyPiece {
  std::uint64_t offset;  // in the source
  std::byte* out;
  std::uint32_t length;  // not 0
  std::uint32_t job;

  std::uint64_t end() const { return offset + length; }
};

struct CopyPlan {
  std::vector<CopyPiece> pieces;     // ascending by (source, offset)
  std::vector<std::size_t> windows;  // first piece of each, and pieces.size() at the end
  std::uint64_t total_bytes = 0;

  std::size_t window_count() const { return windows.size() - 1; }
  std::span<const CopyPiece> window(std::size_t i) const {
    return std::span(pieces).subspan(windows[i], windows[i + 1] - windows[i]);
  }
};

// Throws Error(kIo), naming the tensor, for a range that its source does not have.
CopyPlan plan_copy(std::span<const CopyJob> jobs);

}  // namespace weightstore::io
