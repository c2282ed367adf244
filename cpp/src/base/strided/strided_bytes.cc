#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/checked.h"
#include "base/strided/strided_memory.h"
#include "weightstore/byte_producer.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

std::uint64_t byte_count(const StridedArray& array) {
  std::uint64_t bytes = array.item_bytes;
  for (const std::uint64_t dim : array.shape) {
    const auto product = checked_mul(bytes, dim);
    if (!product) throw Error(ErrorCode::kLimit, "the array has more than 2^64 bytes");
    bytes = *product;
  }
  return bytes;
}

void check(const StridedArray& array) {
  if (array.item_bytes < 1 || array.item_bytes > 16) {
    throw Error(ErrorCode::kInvalidArgument,
                "elements must have 1 to 16 bytes, not " + std::to_string(array.item_bytes));
  }
  if (array.shape.size() != array.byte_strides.size()) {
    throw Error(ErrorCode::kInvalidArgument, std::to_string(array.shape.size()) + " dimensions, but " +
                                                 std::to_string(array.byte_strides.size()) + " strides");
  }
  if (array.data == nullptr && std::find(array.shape.begin(), array.shape.end(), 0u) == array.shape.end()) {
    throw Error(ErrorCode::kInvalidArgument, "an array with elements at a null pointer");
  }
  if (array.sign_bytes == 0) return;
  const std::size_t components = array.conjugate ? 2 : 1;
  const bool known = array.sign_bytes == 1 || array.sign_bytes == 2 || array.sign_bytes == 4 || array.sign_bytes == 8;
  if (!known || array.item_bytes % (array.sign_bytes * components) != 0) {
    throw Error(ErrorCode::kInvalidArgument, "no sign to change in components of " + std::to_string(array.sign_bytes) +
                                                 " bytes of elements of " + std::to_string(array.item_bytes));
  }
}

class StridedBytes final : public ByteProducer {
 public:
  StridedBytes(const StridedArray& array, std::shared_ptr<const void> owner) : memory_(array, std::move(owner)) {}

  std::uint64_t size() const override { return memory_.size(); }
  std::optional<ConstBytes> resident() const override { return memory_.resident(); }
  void fill(std::uint64_t offset, MutableBytes out) override { memory_.read(offset, out); }

 private:
  const StridedMemory memory_;
};

// The memory that an array touches, and where its elements are in it.
struct Touched {
  ConstBytes bytes;
  StridedElements elements;
};

Touched touched_by(const StridedArray& array) {
  check(array);
  const std::uint64_t size = byte_count(array);
  StridedElements elements;
  elements.item_bytes = array.item_bytes;
  elements.sign_bytes = std::max<std::uint64_t>(array.sign_bytes, 1);
  elements.change_even_signs = array.sign_bytes != 0 && array.negate;
  elements.change_odd_signs = array.sign_bytes != 0 && array.negate != array.conjugate;
  // The memory begins with the element of the lowest address, which a negative stride puts before the first.
  std::uint64_t extent = size == 0 ? 0 : array.item_bytes;
  for (std::size_t i = 0; i < array.shape.size(); ++i) {
    const StridedElements::Dim dim{array.shape[i], array.byte_strides[i]};
    elements.dims.push_back(dim);
    if (size == 0 || dim.count == 1) continue;
    const std::uint64_t reach = (dim.count - 1) * static_cast<std::uint64_t>(std::abs(dim.stride));
    if (dim.stride < 0) elements.begin += reach;
    extent += reach;
  }
  return {ConstBytes(array.data - elements.begin, extent), std::move(elements)};
}

}  // namespace

StridedMemory::StridedMemory(const StridedArray& array, std::shared_ptr<const void> owner)
    : first_(array.data), reader_(StridedElements{}) {
  Touched touched = touched_by(array);
  memory_ = memory_source(touched.bytes, std::move(owner));
  reader_ = StridedReader(std::move(touched.elements));
}

std::optional<ConstBytes> StridedMemory::resident() const {
  if (!reader_.is_contiguous()) return std::nullopt;
  return ConstBytes(first_, reader_.size());
}

std::shared_ptr<ByteProducer> strided_bytes(StridedArray array, std::shared_ptr<const void> owner) {
  return std::make_shared<StridedBytes>(array, std::move(owner));
}

}  // namespace weightstore
