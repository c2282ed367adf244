#include "io/copy_plan.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/checked.h"
#include "io/checked_io.h"

namespace weightstore::io {
namespace {

void check_range(const CopyJob& job) {
  const auto end = checked_add(job.offset, job.out.size());
  if (end && *end <= job.source->size()) return;
  throw Error(ErrorCode::kIo, "needed " + std::to_string(job.out.size()) + " bytes, but the source has only " +
                                  std::to_string(job.source->size()) + " in all")
      .in_file(job.source->name())
      .in_tensor(job.name)
      .at_offset(job.offset);
}

}  // namespace

CopyPlan plan_copy(std::span<const CopyJob> jobs) {
  if (jobs.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::kLimit, "too many ranges in one call: " + std::to_string(jobs.size()));
  }
  CopyPlan plan;
  for (std::uint32_t i = 0; i < jobs.size(); ++i) {
    const CopyJob& job = jobs[i];
    check_range(job);
    plan.total_bytes += job.out.size();
    for (std::size_t done = 0; done < job.out.size();) {
      const std::uint64_t offset = job.offset + done;
      const std::size_t length = std::min<std::size_t>(job.out.size() - done, kBlockBytes - offset % kBlockBytes);
      plan.pieces.push_back({offset, job.out.data() + done, static_cast<std::uint32_t>(length), i});
      done += length;
    }
  }
  const auto key = [&](const CopyPiece& piece) { return std::tuple(jobs[piece.job].source, piece.offset); };
  const auto less = [&](const CopyPiece& a, const CopyPiece& b) { return key(a) < key(b); };
  if (!std::is_sorted(plan.pieces.begin(), plan.pieces.end(), less)) {
    std::sort(plan.pieces.begin(), plan.pieces.end(), less);
  }
  const auto window = [&](const CopyPiece& piece) {
    return std::tuple(jobs[piece.job].source, piece.offset / kBlockBytes);
  };
  for (std::size_t i = 0; i < plan.pieces.size(); ++i) {
    if (i == 0 || window(plan.pieces[i]) != window(plan.pieces[i - 1])) plan.windows.push_back(i);
  }
  plan.windows.push_back(plan.pieces.size());
  return plan;
}

}  // namespace weightstore::io
