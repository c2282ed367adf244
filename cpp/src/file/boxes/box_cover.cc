#include "file/boxes/box_cover.h"

#include <algorithm>

namespace weightstore {
namespace {

constexpr std::size_t kMaxScattered = 8192;

std::uint64_t product(std::span<const std::uint64_t> sizes) {
  std::uint64_t count = 1;
  for (const std::uint64_t size : sizes) count *= size;
  return count;
}

bool overlap(const BoxPlace& a, const BoxPlace& b) {
  for (std::size_t i = 0; i < a.begin.size(); ++i) {
    if (a.begin[i] + a.size[i] <= b.begin[i] || b.begin[i] + b.size[i] <= a.begin[i]) return false;
  }
  return true;
}

// Whether each box reaches in every dimension just to where other boxes begin, or to the end of the tensor. Then two
// boxes overlap only if they are one cell.
bool are_cells(std::span<const std::uint64_t> shape, std::span<const BoxPlace* const> boxes) {
  std::vector<std::uint64_t> begins(boxes.size());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    for (std::size_t k = 0; k < boxes.size(); ++k) begins[k] = boxes[k]->begin[i];
    std::sort(begins.begin(), begins.end());
    for (const BoxPlace* box : boxes) {
      const auto next = std::upper_bound(begins.begin(), begins.end(), box->begin[i]);
      if (box->begin[i] + box->size[i] > (next == begins.end() ? shape[i] : *next)) return false;
    }
  }
  return true;
}

// `boxes` are in the order of where they begin.
bool any_same(std::span<const BoxPlace* const> boxes) {
  const auto same = [](const BoxPlace* a, const BoxPlace* b) { return a->begin == b->begin; };
  return std::adjacent_find(boxes.begin(), boxes.end(), same) != boxes.end();
}

bool any_overlap(std::span<const std::uint64_t> shape, std::span<const BoxPlace* const> boxes) {
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    for (std::size_t k = i + 1; k < boxes.size(); ++k) {
      const bool is_beyond = !shape.empty() && boxes[k]->begin[0] >= boxes[i]->begin[0] + boxes[i]->size[0];
      if (is_beyond) break;
      if (overlap(*boxes[i], *boxes[k])) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<std::string> why_no_cover(std::span<const std::uint64_t> shape, std::span<const BoxPlace> boxes) {
  std::vector<const BoxPlace*> order;
  std::uint64_t covered = 0;
  const std::uint64_t whole = product(shape);
  for (const BoxPlace& box : boxes) {
    const std::uint64_t elements = product(box.size);
    if (elements == 0) continue;
    if (elements > whole - covered) return "two chunks of the tensor overlap";
    covered += elements;
    order.push_back(&box);
  }
  std::sort(order.begin(), order.end(), [](const BoxPlace* a, const BoxPlace* b) { return a->begin < b->begin; });
  if (are_cells(shape, order)) {
    if (any_same(order)) return "two chunks of the tensor overlap";
  } else if (order.size() > kMaxScattered) {
    return "it has " + std::to_string(order.size()) + " chunks that form no grid; at most " +
           std::to_string(kMaxScattered) + " are supported";
  } else if (any_overlap(shape, order)) {
    return "two chunks of the tensor overlap";
  }
  if (covered == whole) return std::nullopt;
  return "its chunks have " + std::to_string(covered) + " of its " + std::to_string(whole) + " elements";
}

}  // namespace weightstore
