// The innermost dimensions that are taken whole and in order form one unit: a run of bytes without gaps. Around it the
// selection is a counter over the outer dimensions. Units that lie close together are fetched by one read and picked
// out of it, because a system call costs more than a page of bytes.

#include "file/slice.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "weightstore/error.h"

namespace weightstore {
namespace {

// Gaps below this are read through; larger ones are skipped.
constexpr std::uint64_t kReadThrough = 16u << 10;
// Memory for reading through gaps.
constexpr std::uint64_t kScratchBytes = 1u << 20;

struct Axis {
  std::int64_t byte_step;
  std::uint64_t count;
};

struct Plan {
  std::uint64_t first = 0;       // offset of the first unit
  std::uint64_t unit_bytes = 0;  // bytes of one unit
  std::vector<Axis> axes;        // outermost first
  std::uint64_t total_bytes = 0;
};

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); }

void check_dim(std::size_t axis, const SliceDim& dim, std::uint64_t size) {
  if (dim.count == 0) return;
  if (dim.step == 0) refuse("slice step 0 in dimension " + std::to_string(axis));
  const __int128_t last = static_cast<__int128_t>(dim.start) + static_cast<__int128_t>(dim.step) * (dim.count - 1);
  if (dim.start >= size || last < 0 || last >= size) {
    refuse("slice leaves dimension " + std::to_string(axis) + " of size " + std::to_string(size));
  }
}

Plan make_plan(DType dtype, const Shape& shape, std::span<const SliceDim> dims) {
  if (dims.size() != shape.size()) {
    refuse("slice has " + std::to_string(dims.size()) + " dimensions, the tensor " + std::to_string(shape.size()));
  }
  if (bits_of(dtype) == 0) refuse("a quantized tensor cannot be sliced");
  bool empty = false;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    check_dim(i, dims[i], shape[i]);
    if (dims[i].count == 0 || shape[i] == 0) empty = true;
  }
  if (empty) return {};

  // Everything below fits: the tensor's own size does, and a selection is not larger.
  Plan plan;
  std::uint64_t unit_bits = bits_of(dtype);
  std::size_t axis = dims.size();
  while (axis > 0 && dims[axis - 1].start == 0 && (dims[axis - 1].step == 1 || dims[axis - 1].count == 1) &&
         dims[axis - 1].count == shape[axis - 1]) {
    unit_bits *= shape[--axis];
  }
  if (unit_bits % 8 != 0) {
    refuse(std::string(name_of(dtype)) + " elements are smaller than a byte: take the last dimension whole");
  }
  plan.unit_bytes = unit_bits / 8;
  plan.total_bytes = plan.unit_bytes;
  std::uint64_t stride = plan.unit_bytes;
  for (; axis > 0; --axis) {
    const SliceDim& dim = dims[axis - 1];
    plan.first += dim.start * stride;
    // The step of a single element is never taken, may be any number, and is not multiplied.
    if (dim.count > 1) plan.axes.insert(plan.axes.begin(), {dim.step * static_cast<std::int64_t>(stride), dim.count});
    plan.total_bytes *= dim.count;
    stride *= shape[axis - 1];
  }
  // A step of one unit is a longer unit.
  if (!plan.axes.empty() && plan.axes.back().byte_step == static_cast<std::int64_t>(plan.unit_bytes)) {
    plan.unit_bytes *= plan.axes.back().count;
    plan.axes.pop_back();
  }
  return plan;
}

// Units of the innermost axis from `first` on, fetched in as few reads as make sense.
void read_axis(std::uint64_t first, const Axis& axis, std::uint64_t unit_bytes, std::byte* out,
               std::vector<std::byte>& scratch, const std::function<void(std::uint64_t, MutableBytes)>& read) {
  const auto step = static_cast<std::uint64_t>(axis.byte_step < 0 ? -axis.byte_step : axis.byte_step);
  const bool apart = step - unit_bytes >= kReadThrough || step >= kScratchBytes || axis.count == 1;
  const std::uint64_t batch = apart ? 1 : std::max<std::uint64_t>(1, kScratchBytes / step);
  const auto position = [&](std::uint64_t i) {
    return first + static_cast<std::uint64_t>(axis.byte_step * static_cast<std::int64_t>(i));
  };
  for (std::uint64_t i = 0; i < axis.count; i += batch) {
    const std::uint64_t n = std::min(batch, axis.count - i);
    if (n == 1) {
      read(position(i), {out + i * unit_bytes, unit_bytes});
      continue;
    }
    const std::uint64_t low = std::min(position(i), position(i + n - 1));
    scratch.resize(step * (n - 1) + unit_bytes);
    read(low, scratch);
    for (std::uint64_t k = i; k < i + n; ++k) {
      std::memcpy(out + k * unit_bytes, scratch.data() + (position(k) - low), unit_bytes);
    }
  }
}

}  // namespace

std::uint64_t slice_bytes(DType dtype, const Shape& shape, std::span<const SliceDim> dims) {
  return make_plan(dtype, shape, dims).total_bytes;
}

void read_slice(DType dtype, const Shape& shape, std::span<const SliceDim> dims, MutableBytes out,
                const std::function<void(std::uint64_t, MutableBytes)>& read) {
  const Plan plan = make_plan(dtype, shape, dims);
  if (out.size() != plan.total_bytes) {
    refuse("the slice has " + std::to_string(plan.total_bytes) + " bytes, the output " + std::to_string(out.size()));
  }
  if (out.empty()) return;
  if (plan.axes.empty()) return read(plan.first, out);

  const Axis inner = plan.axes.back();
  const std::size_t outer_count = plan.axes.size() - 1;
  std::vector<std::uint64_t> counter(outer_count, 0);
  std::vector<std::byte> scratch;
  std::uint64_t position = plan.first;
  for (std::byte* to = out.data();; to += inner.count * plan.unit_bytes) {
    read_axis(position, inner, plan.unit_bytes, to, scratch, read);
    std::size_t axis = outer_count;
    for (; axis > 0; --axis) {
      const Axis& outer = plan.axes[axis - 1];
      position += static_cast<std::uint64_t>(outer.byte_step);
      if (++counter[axis - 1] < outer.count) break;
      position -= static_cast<std::uint64_t>(outer.byte_step) * outer.count;
      counter[axis - 1] = 0;
    }
    if (axis == 0) return;
  }
}

}  // namespace weightstore
