#pragma once

// Copies of strided arrays from memory to memory.

#include <cstddef>
#include <cstdint>
#include <span>

namespace weightstore {

// One dimension of a copy: `count` steps, each of so many bytes in the input and in the output.
struct CopyAxis {
  std::uint64_t count;
  std::int64_t in_step;
  std::int64_t out_step;
};

// Copies `run` bytes for every combination of steps along `axes`, which may come in any order. Input and output do not
// overlap.
void copy_strided(std::span<const CopyAxis> axes, const std::byte* in, std::byte* out, std::size_t run);

// The runs at all combinations of steps along `grid` are in `out`. Copies them `repetition.count - 1` times, to the
// other steps of `repetition`. `grid` is sorted by out_step, all of which are positive.
void repeat_strided(std::span<const CopyAxis> grid, std::byte* out, std::uint64_t run, const CopyAxis& repetition);

}  // namespace weightstore
