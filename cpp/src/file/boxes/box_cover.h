#pragma once

// Whether boxes make up a tensor.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weightstore {

// Where a box lies in its tensor: its first index in every dimension, and how many it has.
struct BoxPlace {
  std::vector<std::uint64_t> begin;
  std::vector<std::uint64_t> size;
};

// nullopt if every element of the tensor is in exactly one of the boxes, otherwise what is wrong. Every box lies inside
// the tensor, which has fewer than 2^62 elements. Takes n log n steps for n boxes that are cells of a grid, as those of
// a distributed tensor are, and up to n^2 for others, of which more than 8,192 are refused.
std::optional<std::string> why_no_cover(std::span<const std::uint64_t> shape, std::span<const BoxPlace> boxes);

}  // namespace weightstore
