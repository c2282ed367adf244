// A range of the result is cut into boxes of the index space. In each box the elements are visited in the order of the
// file, innermost the dimension with the smallest stride, so that what lies together is read together, whatever order
// it is wanted in: a transposed matrix is read row by row of the file and scattered. What a box repeats (a stride of 0)
// is read once and copied from the result.

#include "formats/pytorch/gather_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "codec/memory_budget.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

// Gaps below this are read through; larger ones are skipped.
constexpr std::uint64_t kReadThrough = 16u << 10;
// Memory for reading through gaps.
constexpr std::uint64_t kScratchBytes = 1u << 20;

struct Axis {
  std::uint64_t count;
  std::uint64_t in_step;   // bytes of the file
  std::uint64_t out_step;  // bytes of the result
};

template <std::size_t kItem>
void scatter_items(std::byte* out, std::uint64_t out_step, const std::byte* in, std::uint64_t in_step,
                   std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) std::memcpy(out + i * out_step, in + i * in_step, kItem);
}

void scatter(std::uint64_t item, std::byte* out, std::uint64_t out_step, const std::byte* in, std::uint64_t in_step,
             std::uint64_t count) {
  if (in_step == item && out_step == item) {
    std::memcpy(out, in, item * count);
    return;
  }
  switch (item) {
    case 1:
      return scatter_items<1>(out, out_step, in, in_step, count);
    case 2:
      return scatter_items<2>(out, out_step, in, in_step, count);
    case 4:
      return scatter_items<4>(out, out_step, in, in_step, count);
    case 8:
      return scatter_items<8>(out, out_step, in, in_step, count);
    default:
      return scatter_items<16>(out, out_step, in, in_step, count);
  }
}

// The first of `count` equal runs is there; the others follow, `step` apart.
void repeat_run(std::byte* first, std::uint64_t run, std::uint64_t step, std::uint64_t count) {
  if (step != run) {
    for (std::uint64_t i = 1; i < count; ++i) std::memcpy(first + i * step, first, run);
    return;
  }
  const std::uint64_t total = run * count;
  for (std::uint64_t done = run; done < total;) {
    const std::uint64_t n = std::min(done, total - done);
    std::memcpy(first + done, first, n);
    done += n;
  }
}

// The same for what is not one run but a grid of them: runs at every position of `grid`.
void repeat_grid(std::span<const Axis> grid, std::byte* first, std::uint64_t run, const Axis& repetition) {
  if (grid.empty()) return repeat_run(first, run, repetition.out_step, repetition.count);
  for (std::uint64_t i = 0; i < grid.back().count; ++i) {
    repeat_grid(grid.first(grid.size() - 1), first + i * grid.back().out_step, run, repetition);
  }
}

class GatherSource final : public ByteSource {
 public:
  GatherSource(std::shared_ptr<const ByteSource> file, Gather gather)
      : file_(std::move(file)), gather_(std::move(gather)) {
    merge_dims();
    elements_ = 1;
    for (const Gather::Dim& dim : gather_.dims) elements_ *= dim.size;
  }

  std::uint64_t size() const override { return elements_ * gather_.item; }
  std::string name() const override { return file_->name(); }
  std::uint64_t begin() const { return gather_.begin; }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    if (offset > size() || out.size() > size() - offset) {
      throw Error(ErrorCode::kIo, "read of " + std::to_string(out.size()) + " bytes beyond the end of a tensor of " +
                                      std::to_string(size()))
          .in_file(name())
          .at_offset(offset);
    }
    const std::uint64_t item = gather_.item;
    // Elements that are asked for in part go through a buffer.
    while (!out.empty() && (offset % item != 0 || out.size() < item)) {
      std::array<std::byte, 16> whole;
      const std::uint64_t inside = offset % item;
      const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), item - inside));
      read_elements(offset / item, 1, whole.data());
      std::memcpy(out.data(), whole.data() + inside, count);
      out = out.subspan(count);
      offset += count;
    }
    if (out.empty()) return;
    const std::uint64_t elements = out.size() / item;
    read_elements(offset / item, elements, out.data());
    if (out.size() % item != 0) read_at(offset + elements * item, out.subspan(elements * item));
  }

 private:
  // Dimensions of one element say nothing, and two that lie evenly are one.
  void merge_dims() {
    std::vector<Gather::Dim> merged;
    for (const Gather::Dim& dim : gather_.dims) {
      if (dim.size == 1) continue;
      if (!merged.empty() && dim.stride != 0 && merged.back().stride % dim.stride == 0 &&
          merged.back().stride / dim.stride == dim.size) {
        merged.back() = {merged.back().size * dim.size, dim.stride};
      } else {
        merged.push_back(dim);
      }
    }
    gather_.dims = std::move(merged);
  }

  // Elements [first, first + count) of the result: the tail of a row, whole rows, the head of a row, at every level.
  void read_elements(std::uint64_t first, std::uint64_t count, std::byte* out) const {
    std::vector<std::byte> scratch;
    cut(0, elements_, gather_.begin, first, count, out, scratch);
    finish(out, count);
  }

  // `block` elements of the result lie below dimension `depth`, the first of them at `begin` of the file.
  void cut(std::size_t depth, std::uint64_t block, std::uint64_t begin, std::uint64_t first, std::uint64_t count,
           std::byte* out, std::vector<std::byte>& scratch) const {
    if (depth == gather_.dims.size() || (first == 0 && count == block)) {
      return copy_box(depth, 0, 0, begin, out, scratch);
    }
    const Gather::Dim& dim = gather_.dims[depth];
    const std::uint64_t row = block / dim.size;
    const auto at = [&](std::uint64_t index) { return begin + index * dim.stride * gather_.item; };
    while (count > 0) {
      const std::uint64_t index = first / row;
      const std::uint64_t inside = first % row;
      std::uint64_t taken = 0;
      if (inside != 0 || count < row) {
        taken = std::min(count, row - inside);
        cut(depth + 1, row, at(index), inside, taken, out, scratch);
      } else {
        const std::uint64_t rows = count / row;
        copy_box(depth + 1, rows, row, at(index), out, scratch);
        taken = rows * row;
      }
      first += taken;
      count -= taken;
      out += taken * gather_.item;
    }
  }

  // All elements below dimension `depth`, for `rows` steps (0: one) of the dimension above, which has `row` elements.
  void copy_box(std::size_t depth, std::uint64_t rows, std::uint64_t row, std::uint64_t begin, std::byte* out,
                std::vector<std::byte>& scratch) const {
    std::vector<Axis> axes;
    std::uint64_t out_step = gather_.item;
    for (std::size_t i = gather_.dims.size(); i-- > depth;) {
      axes.push_back({gather_.dims[i].size, gather_.dims[i].stride * gather_.item, out_step});
      out_step *= gather_.dims[i].size;
    }
    if (rows > 1) axes.push_back({rows, gather_.dims[depth - 1].stride * gather_.item, row * gather_.item});
    const auto by_out_step = [](const Axis& a, const Axis& b) { return a.out_step < b.out_step; };
    const auto first_repetition =
        std::stable_partition(axes.begin(), axes.end(), [](const Axis& axis) { return axis.in_step != 0; });
    std::vector<Axis> repetitions(first_repetition, axes.end());
    axes.erase(first_repetition, axes.end());
    if (axes.empty()) axes.push_back({1, gather_.item, gather_.item});
    std::stable_sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.in_step < b.in_step; });
    copy_axes(axes, axes.size(), begin, out, scratch);

    std::sort(repetitions.begin(), repetitions.end(), by_out_step);
    std::sort(axes.begin(), axes.end(), by_out_step);
    for (const Axis& repetition : repetitions) {
      // Axes that leave no gap in the result are one run.
      std::uint64_t run = gather_.item;
      std::size_t dense = 0;
      while (dense < axes.size() && axes[dense].out_step == run) run *= axes[dense++].count;
      repeat_grid(std::span(axes).subspan(dense), out, run, repetition);
      axes.insert(std::upper_bound(axes.begin(), axes.end(), repetition, by_out_step), repetition);
    }
  }

  void copy_axes(const std::vector<Axis>& axes, std::size_t count, std::uint64_t begin, std::byte* out,
                 std::vector<std::byte>& scratch) const {
    const Axis& axis = axes[count - 1];
    if (count == 1) return copy_run(axis, begin, out, scratch);
    for (std::uint64_t i = 0; i < axis.count; ++i) {
      copy_axes(axes, count - 1, begin + i * axis.in_step, out + i * axis.out_step, scratch);
    }
  }

  // Elements evenly apart in the file.
  void copy_run(const Axis& axis, std::uint64_t begin, std::byte* out, std::vector<std::byte>& scratch) const {
    const std::uint64_t item = gather_.item;
    if (axis.in_step == item && axis.out_step == item) return fetch(begin, {out, item * axis.count});
    const bool apart = axis.in_step - item >= kReadThrough;
    const std::uint64_t batch = apart ? 1 : std::max<std::uint64_t>(1, kScratchBytes / axis.in_step);
    for (std::uint64_t i = 0; i < axis.count; i += batch) {
      const std::uint64_t n = std::min(batch, axis.count - i);
      const std::uint64_t span = (n - 1) * axis.in_step + item;
      const std::byte* in = lend(begin + i * axis.in_step, span, scratch);
      scatter(item, out + i * axis.out_step, axis.out_step, in, axis.in_step, n);
    }
  }

  // As elsewhere, a mapped file is read and not touched: it may shrink under us.
  bool lends() const { return file_->descriptor() < 0; }

  void fetch(std::uint64_t begin, MutableBytes out) const { file_->read_at(begin, out); }

  const std::byte* lend(std::uint64_t begin, std::uint64_t length, std::vector<std::byte>& scratch) const {
    if (lends()) {
      if (const auto view = file_->view(begin, length)) return view->bytes.data();
    }
    scratch.resize(std::max<std::size_t>(scratch.size(), static_cast<std::size_t>(length)));
    fetch(begin, {scratch.data(), static_cast<std::size_t>(length)});
    return scratch.data();
  }

  void finish(std::byte* out, std::uint64_t elements) const {
    const std::uint64_t bytes = elements * gather_.item;
    if (gather_.swap > 1) {
      for (std::uint64_t i = 0; i < bytes; i += gather_.swap) std::reverse(out + i, out + i + gather_.swap);
    }
    if (gather_.sign == 0) return;
    bool odd = false;
    for (std::uint64_t i = gather_.sign - 1; i < bytes; i += gather_.sign, odd = !odd) {
      if (odd ? gather_.sign_odd : gather_.sign_even) out[i] ^= std::byte{0x80};
    }
  }

  const std::shared_ptr<const ByteSource> file_;
  Gather gather_;
  std::uint64_t elements_ = 0;
};

}  // namespace

std::optional<std::uint64_t> gathered_from(const ByteSource& source) {
  const auto* gathered = dynamic_cast<const GatherSource*>(&source);
  if (gathered == nullptr) return std::nullopt;
  return gathered->begin();
}

std::uint64_t gather_source_bytes(std::size_t rank) {
  constexpr std::uint64_t kControl = 32;                                     // of std::make_shared
  constexpr std::uint64_t kPlace = 3 * sizeof(std::shared_ptr<ByteSource>);  // in an array that doubles
  return MemoryBudget::block(sizeof(GatherSource) + kControl) + kPlace +
         2 * MemoryBudget::block(rank * sizeof(Gather::Dim));  // before and after they are merged
}

std::shared_ptr<const ByteSource> gather_source(std::shared_ptr<const ByteSource> file, Gather gather) {
  return std::make_shared<GatherSource>(std::move(file), std::move(gather));
}

}  // namespace weightstore::pytorch
