#include "checkpoint/load/shared_targets.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "base/strided/strided_reader.h"
#include "file/boxes/box.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 20;

const std::byte* begin_of(const DenseLoad& load) { return load.target->bytes.data(); }
const std::byte* end_of(const DenseLoad& load) { return begin_of(load) + load.target->bytes.size(); }

// Reads what the checkpoint has for targets, any range of it.
class TargetBytes {
 public:
  explicit TargetBytes(const CheckpointIndex& index) : assembled_(index.assembled("")) {}

  // Bytes of the target from `offset` on.
  void read(const DenseLoad& load, std::uint64_t offset, MutableBytes out) const {
    const TensorTable& table = assembled_.table();
    const std::size_t tensor = table.at(load.source_name);
    const ByteSource& source = *table.sources()[table.source_of(tensor)];
    const LoadTarget& target = *load.target;
    if (!target.part_of) return source.read_at(table.begin(tensor) + offset, out);
    const BoxRuns runs(box_of(target.dtype, target.part_of->whole, target.part_of->begin, target.shape));
    StridedReader(runs.elements(table.begin(tensor))).read(source, offset, out);
  }

 private:
  const Reader assembled_;
};

// Whether two targets are the same part of the same tensor.
bool same_part(const DenseLoad& a, const DenseLoad& b) {
  const auto begin = [](const DenseLoad& load) { return load.target->part_of ? load.target->part_of->begin : Shape(); };
  return a.source == b.source && begin(a) == begin(b) && a.target->shape == b.target->shape;
}

// Throws unless the checkpoint has the same bytes for the memory that `load` shares with `other`. `other` begins first.
void require_same_bytes(const TargetBytes& bytes, const DenseLoad& other, const DenseLoad& load) {
  const auto begin = static_cast<std::uint64_t>(begin_of(load) - begin_of(other));
  const auto shared = static_cast<std::uint64_t>(std::min(end_of(load), end_of(other)) - begin_of(load));
  std::vector<std::byte> ours(static_cast<std::size_t>(std::min(shared, kChunkBytes)));
  std::vector<std::byte> theirs(ours.size());
  for (std::uint64_t done = 0; done < shared; done += ours.size()) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(shared - done, ours.size()));
    bytes.read(load, done, std::span(ours).first(count));
    bytes.read(other, begin + done, std::span(theirs).first(count));
    if (std::memcmp(ours.data(), theirs.data(), count) == 0) continue;
    throw Error(ErrorCode::kInvalidArgument, "shares memory with '" + printable(other.target->name) +
                                                 "', but the checkpoint has different values for the two; load only "
                                                 "one of them, or give each its own memory")
        .in_tensor(load.target->name);
  }
}

}  // namespace

DenseOrder order_dense(const CheckpointIndex& index, std::span<const DenseLoad> loads) {
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
  std::optional<TargetBytes> bytes;
  // The target that reaches furthest covers all memory that the next one can share: it is enough to compare with it.
  const DenseLoad* furthest = nullptr;
  for (const DenseLoad& load : sorted) {
    if (furthest == nullptr || begin_of(load) >= end_of(*furthest)) {
      order.together.push_back(load);
      furthest = &load;
      continue;
    }
    if (!same_part(*furthest, load) || begin_of(*furthest) != begin_of(load)) {
      if (!bytes) bytes.emplace(index);
      require_same_bytes(*bytes, *furthest, load);
    }
    if (end_of(load) <= end_of(*furthest)) continue;
    order.one_by_one.push_back(load);
    furthest = &load;
  }
  return order;
}

}  // namespace weightstore::checkpoint
