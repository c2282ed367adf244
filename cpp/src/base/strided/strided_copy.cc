#include "base/strided/strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

// The inner two loops decide about speed. The inner one goes along the axis whose runs are next to each other in the
// output, the one around it along the axis whose runs are next to each other in the input. If these are two axes, as in
// a transposed matrix, both loops advance in tiles, so that every cache line fetched is used up.

namespace weightstore {
namespace {

constexpr std::uint64_t kTile = 32;
// Repeated from the inner cache.
constexpr std::uint64_t kRepeatBytes = 16u << 10;

template <class Step>
std::int64_t offset(std::uint64_t steps, Step step) {
  return static_cast<std::int64_t>(steps) * static_cast<std::int64_t>(step);
}

// `Run` and `Step` are numbers, or types that are constants: then the compiler copies a run by one instruction.
template <class Run, class Step>
inline void copy_row(std::uint64_t count, const std::byte* in, std::int64_t in_step, std::byte* out, Step out_step,
                     Run run) {
  for (; count > 0; --count, in += in_step, out += out_step) std::memcpy(out, in, run);
}

template <class Run, class Step>
void copy_plane(const CopyAxis& rows, const CopyAxis& columns, const std::byte* in, std::byte* out, Step out_step,
                Run run) {
  const bool transposed = std::abs(rows.in_step) < std::abs(columns.in_step);
  const std::uint64_t height = transposed ? kTile : rows.count;
  const std::uint64_t width = transposed ? kTile : columns.count;
  for (std::uint64_t r = 0; r < rows.count; r += height) {
    const std::uint64_t row_count = std::min(height, rows.count - r);
    for (std::uint64_t c = 0; c < columns.count; c += width) {
      const std::uint64_t column_count = std::min(width, columns.count - c);
      const std::byte* from = in + offset(r, rows.in_step) + offset(c, columns.in_step);
      std::byte* to = out + offset(r, rows.out_step) + offset(c, out_step);
      for (std::uint64_t i = 0; i < row_count; ++i, from += rows.in_step, to += rows.out_step) {
        copy_row(column_count, from, columns.in_step, to, out_step, run);
      }
    }
  }
}

// axes[0] and axes[1] are the columns and rows of planes.
template <class Run>
void copy_planes(std::span<const CopyAxis> axes, const std::byte* in, std::byte* out, Run run) {
  if (axes.size() == 2) {
    // In most copies the runs of a row leave no gap in the output.
    if (axes[0].out_step == static_cast<std::int64_t>(run)) return copy_plane(axes[1], axes[0], in, out, run, run);
    return copy_plane(axes[1], axes[0], in, out, axes[0].out_step, run);
  }
  const CopyAxis& axis = axes.back();
  for (std::uint64_t i = 0; i < axis.count; ++i) {
    copy_planes(axes.first(axes.size() - 1), in + offset(i, axis.in_step), out + offset(i, axis.out_step), run);
  }
}

// The first of `count` equal runs is there; the others follow, `step` apart.
void repeat_run(std::byte* first, std::uint64_t run, std::uint64_t step, std::uint64_t count) {
  if (step != run) {
    for (std::uint64_t i = 1; i < count; ++i) std::memcpy(first + i * step, first, run);
    return;
  }
  const std::uint64_t total = run * count;
  const std::uint64_t most = std::max(run, kRepeatBytes / run * run);
  for (std::uint64_t done = run; done < total;) {
    const std::uint64_t n = std::min({done, total - done, most});
    std::memcpy(first + done, first, n);
    done += n;
  }
}

void repeat_grid(std::span<const CopyAxis> grid, std::byte* first, std::uint64_t run, const CopyAxis& repetition) {
  if (grid.empty()) return repeat_run(first, run, static_cast<std::uint64_t>(repetition.out_step), repetition.count);
  const CopyAxis& axis = grid.back();
  for (std::uint64_t i = 0; i < axis.count; ++i) {
    repeat_grid(grid.first(grid.size() - 1), first + offset(i, axis.out_step), run, repetition);
  }
}

template <std::size_t kRun>
using Constant = std::integral_constant<std::size_t, kRun>;

}  // namespace

void copy_strided(std::span<const CopyAxis> axes, const std::byte* in, std::byte* out, std::size_t run) {
  std::vector<CopyAxis> loops(axes.begin(), axes.end());
  while (loops.size() < 2) loops.push_back({1, INT64_MAX, INT64_MAX});
  std::ranges::sort(loops, {}, [](const CopyAxis& axis) { return std::abs(axis.in_step); });
  // The columns go to the front; the others stay in the order of the input.
  const auto columns =
      std::ranges::min_element(loops, {}, [](const CopyAxis& axis) { return std::abs(axis.out_step); });
  std::rotate(loops.begin(), columns, columns + 1);
  switch (run) {
    case 1:
      return copy_planes(loops, in, out, Constant<1>());
    case 2:
      return copy_planes(loops, in, out, Constant<2>());
    case 4:
      return copy_planes(loops, in, out, Constant<4>());
    case 8:
      return copy_planes(loops, in, out, Constant<8>());
    case 16:
      return copy_planes(loops, in, out, Constant<16>());
    default:
      return copy_planes(loops, in, out, run);
  }
}

void repeat_strided(std::span<const CopyAxis> grid, std::byte* out, std::uint64_t run, const CopyAxis& repetition) {
  // Axes that leave no gap are one longer run.
  while (!grid.empty() && grid.front().out_step == static_cast<std::int64_t>(run)) {
    run *= grid.front().count;
    grid = grid.subspan(1);
  }
  repeat_grid(grid, out, run, repetition);
}

}  // namespace weightstore
