#include "checkpoint/load/shared_targets.h"

#include <algorithm>
#include <cstring>

#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 20;

const std::byte* begin_of(const DenseLoad& load) { return load.target->bytes.data(); }
const std::byte* end_of(const DenseLoad& load) { return begin_of(load) + load.target->bytes.size(); }

// Bytes of a tensor of the checkpoint from `offset` on, across the borders of its blocks.
void read_source(const Reader& reader, const CheckpointTensor& source, std::uint64_t offset, MutableBytes out) {
  for (const CheckpointBlock& block : source.blocks) {
    const std::uint64_t size = reader.table().nbytes(block.tensor);
    if (offset >= size) {
      offset -= size;
      continue;
    }
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(size - offset, out.size()));
    reader.read_range(block.tensor, offset, out.first(count));
    out = out.subspan(count);
    offset = 0;
    if (out.empty()) return;
  }
}

// Throws unless the checkpoint has the same bytes for the memory that `load` shares with `other`. `other` begins first.
void require_same_bytes(const Reader& reader, const DenseLoad& other, const DenseLoad& load) {
  const auto begin = static_cast<std::uint64_t>(begin_of(load) - begin_of(other));
  if (load.source == other.source && begin == 0) return;
  const auto shared = static_cast<std::uint64_t>(std::min(end_of(load), end_of(other)) - begin_of(load));
  std::vector<std::byte> ours(static_cast<std::size_t>(std::min(shared, kChunkBytes)));
  std::vector<std::byte> theirs(ours.size());
  for (std::uint64_t done = 0; done < shared; done += ours.size()) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(shared - done, ours.size()));
    read_source(reader, *load.source, done, std::span(ours).first(count));
    read_source(reader, *other.source, begin + done, std::span(theirs).first(count));
    if (std::memcmp(ours.data(), theirs.data(), count) == 0) continue;
    throw Error(ErrorCode::kInvalidArgument, "shares memory with '" + printable(other.target->name) +
                                                 "', but the checkpoint has different values for the two; load only "
                                                 "one of them, or give each its own memory")
        .in_tensor(load.target->name);
  }
}

}  // namespace

DenseOrder order_dense(const Reader& reader, std::span<const DenseLoad> loads) {
  std::vector<DenseLoad> sorted;
  for (const DenseLoad& load : loads) {
    if (!load.target->bytes.empty()) sorted.push_back(load);
  }
  // Of targets that begin together the longest comes first, so that the others lie inside it.
  std::stable_sort(sorted.begin(), sorted.end(), [](const DenseLoad& a, const DenseLoad& b) {
    const std::less<> before;
    if (begin_of(a) != begin_of(b)) return before(begin_of(a), begin_of(b));
    return before(end_of(b), end_of(a));
  });
  DenseOrder order;
  // The target that reaches furthest covers all memory that the next one can share: it is enough to compare with it.
  const DenseLoad* furthest = nullptr;
  for (const DenseLoad& load : sorted) {
    if (furthest == nullptr || begin_of(load) >= end_of(*furthest)) {
      order.together.push_back(load);
      furthest = &load;
      continue;
    }
    require_same_bytes(reader, *furthest, load);
    if (end_of(load) <= end_of(*furthest)) continue;
    order.one_by_one.push_back(load);
    furthest = &load;
  }
  return order;
}

}  // namespace weightstore::checkpoint
