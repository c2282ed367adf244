#include "io/copy_plan.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/checked.h"
#include "io/checked_io.h"

namespace weightstore::io {
namespace {

void check_range(const CopyRange& range) {
  const auto end = checked_add(range.offset, range.out.size());
  if (end && *end <= range.source->size()) return;
  throw Error(ErrorCode::kIo, "needed " + std::to_string(range.out.size()) + " bytes, but the source has only " +
                                  std::to_string(range.source->size()) + " in all")
      .in_file(range.source->name())
      .in_tensor(range.name)
      .at_offset(range.offset);
}

}  // namespace

CopyPlan plan_copy(std::span<const CopyRange> ranges) {
  if (ranges.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::kLimit, "too many ranges in one call: " + std::to_string(ranges.size()));
  }
  CopyPlan plan;
  for (std::uint32_t i = 0; i < ranges.size(); ++i) {
    const CopyRange& range = ranges[i];
    check_range(range);
    plan.total_bytes += range.out.size();
    for (std::size_t done = 0; done < range.out.size();) {
      const std::uint64_t offset = range.offset + done;
      const std::size_t length = std::min<std::size_t>(range.out.size() - done, kChunkBytes - offset % kChunkBytes);
      plan.pieces.push_back({offset, range.out.data() + done, static_cast<std::uint32_t>(length), i});
      done += length;
    }
  }
  const auto key = [&](const CopyPiece& piece) { return std::tuple(ranges[piece.range].source, piece.offset); };
  const auto less = [&](const CopyPiece& a, const CopyPiece& b) { return key(a) < key(b); };
  if (!std::is_sorted(plan.pieces.begin(), plan.pieces.end(), less)) {
    std::sort(plan.pieces.begin(), plan.pieces.end(), less);
  }
  const auto window = [&](const CopyPiece& piece) {
    return std::tuple(ranges[piece.range].source, piece.offset / kChunkBytes);
  };
  for (std::size_t i = 0; i < plan.pieces.size(); ++i) {
    if (i == 0 || window(plan.pieces[i]) != window(plan.pieces[i - 1])) plan.windows.push_back(i);
  }
  plan.windows.push_back(plan.pieces.size());
  return plan;
}

}  // namespace weightstore::io
