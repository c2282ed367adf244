#include "file/boxes/box.h"

#include <string>

#include "base/checked.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

constexpr std::uint64_t kMaxTensorBytes = std::uint64_t{1} << 62;

[[noreturn]] void refuse_box(const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); }

void check_box(const TensorBox& box) {
  if (box.item_bytes < 1 || box.item_bytes > 16) {
    refuse_box("elements must have 1 to 16 bytes, not " + std::to_string(box.item_bytes));
  }
  if (box.begin.size() != box.shape.size() || box.size.size() != box.shape.size()) {
    refuse_box("a box of " + std::to_string(box.begin.size()) + " dimensions in a tensor of " +
               std::to_string(box.shape.size()));
  }
  for (std::size_t i = 0; i < box.shape.size(); ++i) {
    if (box.begin[i] <= box.shape[i] && box.size[i] <= box.shape[i] - box.begin[i]) continue;
    refuse_box("a box of " + std::to_string(box.size[i]) + " indices from " + std::to_string(box.begin[i]) +
               " on leaves dimension " + std::to_string(i) + " of size " + std::to_string(box.shape[i]));
  }
}

std::uint64_t bytes_of_tensor(const TensorBox& box) {
  std::uint64_t bytes = box.item_bytes;
  for (const std::uint64_t count : box.shape) {
    const auto product = checked_mul(bytes, count);
    if (!product || *product > kMaxTensorBytes) refuse_box("the tensor has more than 2^62 bytes");
    bytes = *product;
  }
  return bytes;
}

bool is_empty(const TensorBox& box) {
  for (const std::uint64_t count : box.size) {
    if (count == 0) return true;
  }
  return false;
}

}  // namespace

TensorBox box_of(DType dtype, std::span<const std::uint64_t> shape, std::span<const std::uint64_t> begin,
                 std::span<const std::uint64_t> size) {
  const unsigned bits = bits_of(dtype);
  if (bits == 0) refuse_box("tensors of " + std::string(name_of(dtype)) + " have no boxes");
  TensorBox box{bits % 8 == 0 ? bits / 8 : 1,
                {shape.begin(), shape.end()},
                {begin.begin(), begin.end()},
                {size.begin(), size.end()}};
  if (bits % 8 == 0) return box;
  for (std::vector<std::uint64_t>* numbers : {&box.shape, &box.begin, &box.size}) {
    if (numbers->empty()) refuse_box("a scalar of " + std::string(name_of(dtype)) + " has no whole bytes");
    const auto last = checked_mul(numbers->back(), bits);
    if (!last || *last % 8 != 0) refuse_box("a box of " + std::string(name_of(dtype)) + " has no whole bytes");
    numbers->back() = *last / 8;
  }
  return box;
}

BoxRuns::BoxRuns(const TensorBox& box) {
  check_box(box);
  tensor_bytes_ = bytes_of_tensor(box);
  if (is_empty(box)) return;
  // The innermost dimensions that are taken whole, and the range of the next one, are one run.
  std::size_t outer = box.shape.size();
  std::uint64_t stride = box.item_bytes;
  while (outer > 0 && box.size[outer - 1] == box.shape[outer - 1]) stride *= box.shape[--outer];
  run_bytes_ = stride;
  if (outer > 0) {
    --outer;
    run_bytes_ = stride * box.size[outer];
    first_ = stride * box.begin[outer];
    stride *= box.shape[outer];
  }
  run_count_ = 1;
  dims_.resize(outer);
  for (std::size_t i = outer; i-- > 0;) {
    dims_[i] = {box.size[i], stride};
    first_ += stride * box.begin[i];
    run_count_ *= box.size[i];
    stride *= box.shape[i];
  }
}

std::uint64_t BoxRuns::offset_of(std::uint64_t run) const {
  std::uint64_t offset = first_;
  for (std::size_t i = dims_.size(); i-- > 0;) {
    offset += run % dims_[i].count * dims_[i].stride;
    run /= dims_[i].count;
  }
  return offset;
}

StridedElements BoxRuns::elements(std::uint64_t begin) const {
  StridedElements elements;
  elements.begin = begin + first_;
  for (const Dim& dim : dims_) elements.dims.push_back({dim.count, static_cast<std::int64_t>(dim.stride)});
  elements.dims.push_back({run_bytes_, 1});
  return elements;
}

}  // namespace weightstore
