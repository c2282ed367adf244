#include "checkpoint/load/shared_targets.h"

#include <algorithm>
#include <cstring>

#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 20;

const std::byte* begin_of(const DenseJob& job) { return job.target->bytes.data(); }
const std::byte* end_of(const DenseJob& job) { return begin_of(job) + job.target->bytes.size(); }

// Bytes of a tensor of the checkpoint from `offset` on, over the borders of its parts.
void read_source(const Reader& reader, const CheckpointTensor& source, std::uint64_t offset, MutableBytes out) {
  for (const CheckpointPart& part : source.parts) {
    const std::uint64_t size = reader.table().nbytes(part.tensor);
    if (offset >= size) {
      offset -= size;
      continue;
    }
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(size - offset, out.size()));
    reader.read_range(part.tensor, offset, out.first(count));
    out = out.subspan(count);
    offset = 0;
    if (out.empty()) return;
  }
}

// Throws unless both sources have the same bytes for the memory that `job` shares with `other`, which begins before it.
void require_same_bytes(const Reader& reader, const DenseJob& other, const DenseJob& job) {
  const auto begin = static_cast<std::uint64_t>(begin_of(job) - begin_of(other));
  if (job.source == other.source && begin == 0) return;
  const auto shared = static_cast<std::uint64_t>(std::min(end_of(job), end_of(other)) - begin_of(job));
  std::vector<std::byte> ours(static_cast<std::size_t>(std::min(shared, kChunkBytes)));
  std::vector<std::byte> theirs(ours.size());
  for (std::uint64_t done = 0; done < shared; done += ours.size()) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(shared - done, ours.size()));
    read_source(reader, *job.source, done, std::span(ours).first(count));
    read_source(reader, *other.source, begin + done, std::span(theirs).first(count));
    if (std::memcmp(ours.data(), theirs.data(), count) == 0) continue;
    throw Error(ErrorCode::kInvalidArgument, "shares memory with '" + printable(other.target->name) +
                                                 "', but the checkpoint has different values for the two; load only "
                                                 "one of them, or give each its own memory")
        .in_tensor(job.target->name);
  }
}

}  // namespace

DenseOrder order_dense(const Reader& reader, std::span<const DenseJob> jobs) {
  std::vector<DenseJob> sorted;
  for (const DenseJob& job : jobs) {
    if (!job.target->bytes.empty()) sorted.push_back(job);
  }
  // Of those that begin together the longest comes first, so that the others lie inside of it.
  std::stable_sort(sorted.begin(), sorted.end(), [](const DenseJob& a, const DenseJob& b) {
    const std::less<> before;
    if (begin_of(a) != begin_of(b)) return before(begin_of(a), begin_of(b));
    return before(end_of(b), end_of(a));
  });
  DenseOrder order;
  // The one that reaches furthest has all memory that the next one can share with any: comparing with it is enough.
  const DenseJob* furthest = nullptr;
  for (const DenseJob& job : sorted) {
    if (furthest == nullptr || begin_of(job) >= end_of(*furthest)) {
      order.together.push_back(job);
      furthest = &job;
      continue;
    }
    require_same_bytes(reader, *furthest, job);
    if (end_of(job) <= end_of(*furthest)) continue;
    order.one_by_one.push_back(job);
    furthest = &job;
  }
  return order;
}

}  // namespace weightstore::checkpoint
