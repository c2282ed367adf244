#include "part_place.h"

#include <algorithm>

#include "weightstore/error.h"

namespace weightstore::torch_bridge {
namespace {

Shape shape_in(const ShapeDict& shapes, const std::string& name, const at::Tensor& part) {
  const auto found = shapes.find(name);
  const std::vector<std::int64_t> sizes = found == shapes.end() ? std::vector<std::int64_t>{-1} : found->value();
  const auto is_negative = [](std::int64_t size) { return size < 0; };
  if (static_cast<std::int64_t>(sizes.size()) != part.dim() || std::any_of(sizes.begin(), sizes.end(), is_negative)) {
    throw Error(ErrorCode::kInvalidArgument, "its place in the whole tensor is missing, or has other dimensions")
        .in_tensor(name);
  }
  Shape shape(sizes.begin(), sizes.end());
  // Two numbers to an element: files count numbers.
  if (part.scalar_type() == c10::ScalarType::Float4_e2m1fn_x2 && !shape.empty()) shape.back() *= 2;
  return shape;
}

}  // namespace

PartPlace part_place(const std::string& name, const at::Tensor& part, const ShapeDict& wholes,
                     const ShapeDict& begins) {
  return {shape_in(wholes, name, part), shape_in(begins, name, part)};
}

}  // namespace weightstore::torch_bridge
