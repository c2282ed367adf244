#include "checkpoint/load/dense_reads.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "checkpoint/load/shared_targets.h"
#include "io/file_ops.h"

namespace weightstore::checkpoint {
namespace {

std::uint64_t bytes_of(std::span<const Reader::Request> requests) {
  std::uint64_t bytes = 0;
  for (const Reader::Request& request : requests) bytes += request.out.size();
  return bytes;
}

std::uint64_t bytes_of(std::span<const WantedBox> boxes) {
  std::uint64_t bytes = 0;
  for (const WantedBox& wanted : boxes) bytes += BoxRuns(wanted.box).bytes();
  return bytes;
}

std::vector<std::int64_t> row_major_strides(const TensorBox& box) {
  std::vector<std::int64_t> strides(box.size.size());
  auto stride = static_cast<std::int64_t>(box.item_bytes);
  for (std::size_t i = strides.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= static_cast<std::int64_t>(box.size[i]);
  }
  return strides;
}

// What `target` and `chunk`, two boxes of one tensor, have in common: as a box of the chunk, and where it is in the
// memory of the target. nullopt if they have nothing in common.
std::optional<WantedBox> common_box(const TensorBox& target, const TensorBox& chunk, std::byte* memory) {
  WantedBox wanted;
  wanted.box = {chunk.item_bytes, chunk.size, {}, {}};
  wanted.byte_strides = row_major_strides(target);
  wanted.out = memory;
  for (std::size_t i = 0; i < target.shape.size(); ++i) {
    const std::uint64_t begin = std::max(target.begin[i], chunk.begin[i]);
    const std::uint64_t end = std::min(target.begin[i] + target.size[i], chunk.begin[i] + chunk.size[i]);
    if (begin >= end) return std::nullopt;
    wanted.box.begin.push_back(begin - chunk.begin[i]);
    wanted.box.size.push_back(end - begin);
    wanted.out += wanted.byte_strides[i] * static_cast<std::int64_t>(begin - target.begin[i]);
  }
  return wanted;
}

}  // namespace

DenseReads::DenseReads(const CheckpointIndex& index, std::span<const DenseLoad> loads) : index_(index) {
  const DenseOrder order = order_dense(index, loads);
  groups_.resize(1 + order.one_by_one.size());
  for (const DenseLoad& load : order.together) add(load, groups_[0]);
  for (std::size_t i = 0; i < order.one_by_one.size(); ++i) add(order.one_by_one[i], groups_[i + 1]);
}

void DenseReads::add(const DenseLoad& load, Group& group) const {
  const Reader& reader = index_.reader();
  const LoadTarget& target = *load.target;
  const CheckpointTensor& source = *load.source;
  if (!target.part_of && source.kind != CheckpointTensor::Kind::kChunked) {
    MutableBytes out = target.bytes;
    for (const CheckpointBlock& block : source.blocks) {
      const auto size = static_cast<std::size_t>(reader.table().nbytes(block.tensor));
      group.whole.push_back({block.tensor, out.first(size)});
      out = out.subspan(size);
    }
    return;
  }
  const Shape zeros(source.shape.size(), 0);
  const TensorBox wanted =
      box_of(target.dtype, source.shape, target.part_of ? target.part_of->begin : zeros, target.shape);
  Shape begin = zeros;  // of a block
  for (const CheckpointBlock& block : source.blocks) {
    const Shape size = reader.table().shape(block.tensor);
    if (source.kind == CheckpointTensor::Kind::kChunked) begin = block.begin;
    auto common = common_box(wanted, box_of(target.dtype, source.shape, begin, size), target.bytes.data());
    if (source.is_column()) begin.front() += size.front();
    if (!common) continue;
    common->reader = &reader;
    common->tensor = block.tensor;
    group.boxes.push_back(std::move(*common));
  }
}

std::uint64_t DenseReads::bytes() const {
  std::uint64_t bytes = 0;
  for (const Group& group : groups_) bytes += bytes_of(group.whole) + bytes_of(group.boxes);
  return bytes;
}

std::vector<std::size_t> DenseReads::tensors() const {
  std::vector<std::size_t> tensors;
  for (const Group& group : groups_) {
    for (const Reader::Request& request : group.whole) tensors.push_back(request.tensor);
    for (const WantedBox& wanted : group.boxes) tensors.push_back(wanted.tensor);
  }
  return tensors;
}

void DenseReads::read(unsigned threads, io::ProgressMeter& meter) const {
  for (const Group& group : groups_) {
    if (!group.whole.empty()) index_.reader().read_many(group.whole, meter.reporting(bytes_of(group.whole)));
    if (!group.boxes.empty()) {
      read_boxes(group.boxes, threads, meter.reporting(bytes_of(group.boxes)), io::current_file_ops());
    }
  }
}

}  // namespace weightstore::checkpoint
