#include "base/strided/strided_reader.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "base/strided/strided_copy.h"

// A range of the result is cut into boxes of the index space: the tail of a row, whole rows, the head of a row, at
// every level of dimensions. A box is read in the order of the source, whatever order it is wanted in: a transposed
// matrix is read row by row of the source and scattered. Dimensions that repeat elements (a stride of 0) are left out
// and then copied within the result.

namespace weightstore {
namespace {

// A system call costs about as much as copying this many bytes: smaller gaps are read through, and runs that are at
// least this long are read on their own, straight into their place.
constexpr std::uint64_t kReadThrough = 8u << 10;
// Memory for reading through gaps.
constexpr std::uint64_t kScratchBytes = 1u << 20;
// Fewer copies of an element than this are not worth a pass of their own.
constexpr std::uint64_t kFewCopies = 16;

using Dim = StridedElements::Dim;

// Removes dimensions of one element, and makes one dimension of two neighbours that lie evenly. In place: the
// dimensions of a file's tensors are counted memory.
void merge(std::vector<Dim>& dims) {
  std::size_t kept = 0;
  for (const Dim dim : dims) {
    if (dim.count == 1) continue;
    std::int64_t extent;
    if (kept > 0 && !__builtin_mul_overflow(dim.stride, dim.count, &extent) && dims[kept - 1].stride == extent) {
      dims[kept - 1] = {dims[kept - 1].count * dim.count, dim.stride};
    } else {
      dims[kept++] = dim;
    }
  }
  dims.resize(kept);
}

template <class Number>
void swap_numbers(MutableBytes bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(Number)) {
    Number number;
    std::memcpy(&number, &bytes[i], sizeof number);
    if constexpr (sizeof number == 2) number = __builtin_bswap16(number);
    if constexpr (sizeof number == 4) number = __builtin_bswap32(number);
    if constexpr (sizeof number == 8) number = __builtin_bswap64(number);
    std::memcpy(&bytes[i], &number, sizeof number);
  }
}

// `out` begins and ends with whole elements.
void swap_bytes(std::uint64_t width, MutableBytes out) {
  switch (width) {
    case 2:
      return swap_numbers<std::uint16_t>(out);
    case 4:
      return swap_numbers<std::uint32_t>(out);
    case 8:
      return swap_numbers<std::uint64_t>(out);
    default:
      break;
  }
}

// Which bits change repeats every two numbers, which 16 bytes hold a whole number of times.
void change_signs(const StridedElements& elements, MutableBytes out) {
  if (!elements.change_even_signs && !elements.change_odd_signs) return;
  std::array<std::byte, 16> flips{};
  bool odd = false;
  for (std::size_t i = elements.sign_bytes - 1; i < flips.size(); i += elements.sign_bytes, odd = !odd) {
    if (odd ? elements.change_odd_signs : elements.change_even_signs) flips[i] = std::byte{0x80};
  }
  std::size_t i = 0;
  for (; i + flips.size() <= out.size(); i += flips.size()) {
    for (std::size_t k = 0; k < flips.size(); ++k) out[i + k] ^= flips[k];
  }
  for (; i < out.size(); ++i) out[i] ^= flips[i % flips.size()];
}

// Reads of one range, with the memory that they share.
class RangeRead {
 public:
  RangeRead(const StridedElements& elements, const ByteSource& source) : elements_(elements), source_(source) {}

  // Elements [first, first + count) of those below dimension `depth`: `below` elements, the first at `begin`.
  void cut(std::size_t depth, std::uint64_t below, std::uint64_t begin, std::uint64_t first, std::uint64_t count,
           std::byte* out) {
    if (depth == elements_.dims.size() || (first == 0 && count == below)) return read_box(depth, 1, begin, out);
    const Dim& dim = elements_.dims[depth];
    const std::uint64_t row = below / dim.count;
    while (count > 0) {
      const std::uint64_t at = begin + first / row * static_cast<std::uint64_t>(dim.stride);
      const std::uint64_t inside = first % row;
      std::uint64_t taken = 0;
      if (inside != 0 || count < row) {
        taken = std::min(count, row - inside);
        cut(depth + 1, row, at, inside, taken, out);
      } else {
        taken = count / row * row;
        read_box(depth + 1, count / row, at, out);
      }
      first += taken;
      count -= taken;
      out += taken * elements_.item_bytes;
    }
  }

 private:
  // An axis of a box, and how many of its steps one read into the scratch memory covers.
  struct Axis : CopyAxis {
    std::uint64_t steps_a_read = 1;
  };

  // All elements below dimension `depth`, for `rows` steps of the dimension above.
  void read_box(std::size_t depth, std::uint64_t rows, std::uint64_t begin, std::byte* out) {
    std::vector<CopyAxis> axes;
    std::vector<CopyAxis> repetitions;
    auto out_step = static_cast<std::int64_t>(elements_.item_bytes);
    const auto add = [&](std::uint64_t count, std::int64_t stride) {
      // A few copies next to each other are soon made with the element.
      const bool few = axes.empty() && repetitions.empty() && count < kFewCopies;
      (stride == 0 && !few ? repetitions : axes).push_back({count, stride, out_step});
      out_step *= static_cast<std::int64_t>(count);
    };
    for (std::size_t i = elements_.dims.size(); i-- > depth;) add(elements_.dims[i].count, elements_.dims[i].stride);
    if (rows > 1) add(rows, elements_.dims[depth - 1].stride);
    read_axes(axes, begin, out);
    for (const CopyAxis& repetition : repetitions) {
      repeat_strided(axes, out, elements_.item_bytes, repetition);
      axes.insert(std::ranges::upper_bound(axes, repetition.out_step, {}, &CopyAxis::out_step), repetition);
    }
  }

  // `axes` are in the order of the result, innermost first.
  void read_axes(std::span<const CopyAxis> axes, std::uint64_t begin, std::byte* out) {
    run_ = elements_.item_bytes;
    while (!axes.empty() && axes[0].in_step == static_cast<std::int64_t>(run_) && axes[0].out_step == axes[0].in_step) {
      run_ *= axes[0].count;
      axes = axes.subspan(1);
    }
    // As elsewhere, a mapped file is read and not touched: it may shrink under us.
    if (source_.descriptor() < 0) {
      std::uint64_t before = 0;  // bytes of the view before the first element
      std::uint64_t span = run_;
      for (const CopyAxis& axis : axes) {
        const std::uint64_t reach = (axis.count - 1) * static_cast<std::uint64_t>(std::abs(axis.in_step));
        if (axis.in_step < 0) before += reach;
        span += reach;
      }
      if (const auto view = source_.view(begin - before, span)) {
        return copy_strided(axes, view->bytes.data() + before, out, static_cast<std::size_t>(run_));
      }
    }
    axes_.clear();
    for (CopyAxis axis : axes) {
      // Turned round, every axis ascends in the source.
      if (axis.in_step < 0) {
        const auto last = static_cast<std::int64_t>(axis.count - 1);
        begin += static_cast<std::uint64_t>(last * axis.in_step);
        out += last * axis.out_step;
        axis = {axis.count, -axis.in_step, -axis.out_step};
      }
      axes_.push_back({axis});
    }
    std::ranges::stable_sort(axes_, {}, &Axis::in_step);
    plan_reads();
    read_steps(axes_.size(), begin, out);
  }

  // Bytes of the source from the beginning of the first run of the first `count` axes to the end of the last.
  std::uint64_t span_of(std::size_t count) const {
    std::uint64_t span = run_;
    for (const Axis& axis : std::span(axes_).first(count)) {
      span += (axis.count - 1) * static_cast<std::uint64_t>(axis.in_step);
    }
    return span;
  }

  void plan_reads() {
    std::uint64_t span = run_;
    bool together = run_ < kReadThrough;  // everything below this axis comes by one read
    for (Axis& axis : axes_) {
      const auto step = static_cast<std::uint64_t>(axis.in_step);
      // One read for several steps costs the gaps. Of the nearest axis it also costs a copy of the runs, which could be
      // read straight into their place.
      const std::uint64_t free = &axis == &axes_.front() ? 0 : span;
      if (step == 0) {
        axis.steps_a_read = axis.count;
      } else if (together && span <= kScratchBytes && step < free + kReadThrough) {
        axis.steps_a_read = (kScratchBytes - span) / step + 1;
      }
      together = together && axis.steps_a_read >= axis.count;
      span += (axis.count - 1) * step;
    }
  }

  // The first `count` axes.
  void read_steps(std::size_t count, std::uint64_t begin, std::byte* out) {
    if (count == 0) return source_.read_at(begin, {out, static_cast<std::size_t>(run_)});
    const Axis& axis = axes_[count - 1];
    const std::uint64_t below = span_of(count - 1);
    for (std::uint64_t i = 0; i < axis.count;) {
      const std::uint64_t steps = std::min(axis.steps_a_read, axis.count - i);
      const std::uint64_t from = begin + i * static_cast<std::uint64_t>(axis.in_step);
      std::byte* const to = out + static_cast<std::int64_t>(i) * axis.out_step;
      i += steps;
      if (steps == 1) {
        read_steps(count - 1, from, to);
        continue;
      }
      const std::uint64_t span = below + (steps - 1) * static_cast<std::uint64_t>(axis.in_step);
      if (scratch_.size() < span) scratch_.resize(static_cast<std::size_t>(span));
      source_.read_at(from, {scratch_.data(), static_cast<std::size_t>(span)});
      std::vector<CopyAxis> box(axes_.begin(), axes_.begin() + static_cast<std::ptrdiff_t>(count));
      box.back().count = steps;
      copy_strided(box, scratch_.data(), to, static_cast<std::size_t>(run_));
    }
  }

  const StridedElements& elements_;
  const ByteSource& source_;
  std::vector<Axis> axes_;  // of the box in hand, in the order of the source, the nearest first
  std::uint64_t run_ = 0;   // bytes that lie together in the source and in the result
  std::vector<std::byte> scratch_;
};

}  // namespace

StridedReader::StridedReader(StridedElements elements) : elements_(std::move(elements)), count_(1) {
  for (const Dim& dim : elements_.dims) count_ *= dim.count;
  merge(elements_.dims);
}

bool StridedReader::is_contiguous() const {
  if (count_ == 0) return true;
  if (elements_.swap_bytes > 1 || elements_.change_even_signs || elements_.change_odd_signs) return false;
  return elements_.dims.empty() ||
         (elements_.dims.size() == 1 && elements_.dims[0].stride == static_cast<std::int64_t>(elements_.item_bytes));
}

void StridedReader::read(const ByteSource& source, std::uint64_t offset, MutableBytes out) const {
  RangeRead range(elements_, source);
  const auto read_elements = [&](std::uint64_t first, MutableBytes bytes) {
    range.cut(0, count_, elements_.begin, first, bytes.size() / elements_.item_bytes, bytes.data());
    swap_bytes(elements_.swap_bytes, bytes);
    change_signs(elements_, bytes);
  };
  const std::uint64_t item = elements_.item_bytes;
  while (!out.empty()) {
    const std::uint64_t inside = offset % item;
    std::size_t count = out.size() - out.size() % item;
    if (inside == 0 && count > 0) {
      read_elements(offset / item, out.first(count));
    } else {  // An element that is asked for in part.
      std::array<std::byte, 16> whole;
      count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), item - inside));
      read_elements(offset / item, {whole.data(), static_cast<std::size_t>(item)});
      std::memcpy(out.data(), whole.data() + inside, count);
    }
    out = out.subspan(count);
    offset += count;
  }
}

}  // namespace weightstore
