#include "file/slice.h"

#include <string>

#include "base/strided/strided_reader.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); }

void check_dim(std::size_t axis, const SliceDim& dim, std::uint64_t size) {
  if (dim.count == 0) return;
  if (dim.step == 0) refuse("slice step 0 in dimension " + std::to_string(axis));
  const __int128_t last = static_cast<__int128_t>(dim.start) + static_cast<__int128_t>(dim.step) * (dim.count - 1);
  if (dim.start >= size || last < 0 || last >= size) {
    refuse("slice leaves dimension " + std::to_string(axis) + " of size " + std::to_string(size));
  }
}

bool is_whole(const SliceDim& dim, std::uint64_t size) {
  return dim.start == 0 && dim.count == size && (dim.step == 1 || dim.count == 1);
}

// The selection in a tensor that begins at `begin`.
StridedReader select(DType dtype, const Shape& shape, std::span<const SliceDim> dims, std::uint64_t begin) {
  if (dims.size() != shape.size()) {
    refuse("slice has " + std::to_string(dims.size()) + " dimensions, the tensor " + std::to_string(shape.size()));
  }
  if (bits_of(dtype) == 0) refuse("a quantized tensor cannot be sliced");
  bool empty = false;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    check_dim(i, dims[i], shape[i]);
    if (dims[i].count == 0 || shape[i] == 0) empty = true;
  }
  StridedElements elements;
  if (empty) {
    elements.dims.push_back({0, 0});
    return StridedReader(std::move(elements));
  }

  // Everything below fits: the tensor's own size does, and a selection is not larger. The innermost dimensions that are
  // taken whole are one run of bytes.
  std::uint64_t run_bits = bits_of(dtype);
  std::size_t outer = dims.size();
  while (outer > 0 && is_whole(dims[outer - 1], shape[outer - 1])) run_bits *= shape[--outer];
  if (run_bits % 8 != 0) {
    refuse(std::string(name_of(dtype)) + " elements are smaller than a byte: take the last dimension whole");
  }
  const std::uint64_t run = run_bits / 8;
  elements.begin = begin;
  elements.dims.resize(outer + 1, {run, 1});
  std::uint64_t stride = run;
  for (std::size_t i = outer; i-- > 0;) {
    elements.begin += dims[i].start * stride;
    // The step of a single element is never taken and may be any number.
    const std::int64_t step = dims[i].count == 1 ? 0 : dims[i].step;
    elements.dims[i] = {dims[i].count, step * static_cast<std::int64_t>(stride)};
    stride *= shape[i];
  }
  return StridedReader(std::move(elements));
}

}  // namespace

std::uint64_t slice_bytes(DType dtype, const Shape& shape, std::span<const SliceDim> dims) {
  return select(dtype, shape, dims, 0).size();
}

void read_slice(DType dtype, const Shape& shape, std::span<const SliceDim> dims, const ByteSource& source,
                std::uint64_t begin, MutableBytes out) {
  const StridedReader selection = select(dtype, shape, dims, begin);
  if (out.size() != selection.size()) {
    refuse("the slice has " + std::to_string(selection.size()) + " bytes, the output " + std::to_string(out.size()));
  }
  selection.read(source, 0, out);
}

}  // namespace weightstore
