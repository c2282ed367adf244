#include "formats/pytorch/numpy_objects.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/corrupt.h"
#include "formats/pytorch/globals.h"
#include "formats/pytorch/pickled_bytes.h"
#include "weightstore/error.h"
#include "weightstore/tensor.h"

namespace weightstore::pytorch {
namespace {

constexpr std::size_t kLongestName = 64;

// What an array is made of, wherever the pickle has it.
struct ArrayParts {
  Node shape;
  Node type;
  bool is_fortran;
  Node elements;
};

void require(bool right) {
  if (!right) throw corrupt("arguments that make no array of numpy");
}

bool is_complex(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }

std::size_t number_bytes(DType dtype) { return bits_of(dtype) / 8 / (is_complex(dtype) ? 2 : 1); }

void swap_numbers(std::span<char> bytes, std::size_t width) {
  for (std::size_t i = 0; i + width <= bytes.size(); i += width) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + width));
  }
}

// BUILD gives an empty array its version, shape, type, order and elements.
ArrayParts parts_of_state(const PickleTree& tree, Node node) {
  const auto state = tree.state(node);
  require(state && tree.kind(*state) == PickleKind::kTuple && tree.count(*state) == 5);
  const Node fortran = tree.item(*state, 3);
  const bool is_number = tree.kind(fortran) == PickleKind::kInt;  // Python 2
  require(is_number || tree.kind(fortran) == PickleKind::kBool);
  return {tree.item(*state, 1), tree.item(*state, 2), is_number ? tree.integer(fortran) != 0 : tree.boolean(fortran),
          tree.item(*state, 4)};
}

// _frombuffer(elements, type, shape, order)
ArrayParts parts_of_arguments(const PickleTree& tree, Node node) {
  const Node arguments = tree.arguments(node);
  require(tree.count(arguments) == 4);
  const Node order = tree.item(arguments, 3);
  require(tree.kind(order) == PickleKind::kText && (tree.text(order) == "C" || tree.text(order) == "F"));
  return {tree.item(arguments, 2), tree.item(arguments, 1), tree.text(order) == "F", tree.item(arguments, 0)};
}

void read_shape(const PickleTree& tree, Node node, const Limits& limits, ChargedVector<std::uint64_t>& shape) {
  require(tree.kind(node) == PickleKind::kTuple);
  if (tree.count(node) > limits.rank) {
    throw Error(ErrorCode::kLimit, "an array of " + std::to_string(tree.count(node)) + " dimensions");
  }
  shape.resize(tree.count(node));
  for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = natural(tree, tree.item(node, i), "a dimension");
}

// From Fortran's order, in which the first dimension is the innermost, to C's.
ChargedString row_major(const ChargedString& elements, std::span<const std::uint64_t> shape, std::size_t width,
                        MemoryBudget& memory) {
  struct Dim {
    std::uint64_t count;
    std::uint64_t stride;  // in `elements`
    std::uint64_t index;
  };
  ChargedVector<Dim> dims(memory);
  std::uint64_t stride = width;
  for (const std::uint64_t count : shape) {
    if (count != 1) dims.push_back({count, stride, 0});
    stride *= count;
  }
  ChargedString result(elements.size(), '\0', memory);
  std::uint64_t from = 0;
  for (std::size_t to = 0; to < result.size(); to += width) {
    std::memcpy(result.data() + to, elements.data() + from, width);
    for (std::size_t i = dims.size(); i-- > 0;) {
      from += dims[i].stride;
      if (++dims[i].index < dims[i].count) break;
      from -= dims[i].count * dims[i].stride;
      dims[i].index = 0;
    }
  }
  return result;
}

template <class T>
T load(std::string_view bytes) {
  T number;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

double half_to_double(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  double number = 0;
  if (exponent == 31) {
    number = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else {
    number = std::ldexp(exponent == 0 ? fraction : fraction + 1024, std::max(exponent, 1) - 25);
  }
  return (bits & 0x8000) != 0 ? -number : number;
}

Value number_of(DType dtype, std::string_view bytes) {
  switch (dtype) {
    case DType::kBool:
      return Value(bytes[0] != 0);
    case DType::kI8:
      return Value(std::int64_t{load<std::int8_t>(bytes)});
    case DType::kI16:
      return Value(std::int64_t{load<std::int16_t>(bytes)});
    case DType::kI32:
      return Value(std::int64_t{load<std::int32_t>(bytes)});
    case DType::kI64:
      return Value(load<std::int64_t>(bytes));
    case DType::kU8:
      return Value(std::int64_t{load<std::uint8_t>(bytes)});
    case DType::kU16:
      return Value(std::int64_t{load<std::uint16_t>(bytes)});
    case DType::kU32:
      return Value(std::int64_t{load<std::uint32_t>(bytes)});
    case DType::kU64:
      return Value(load<std::uint64_t>(bytes));
    case DType::kF16:
      return Value(half_to_double(load<std::uint16_t>(bytes)));
    case DType::kF32:
      return Value(double{load<float>(bytes)});
    case DType::kF64:
      return Value(load<double>(bytes));
    case DType::kC64:
      return Value(Value::List{number_of(DType::kF32, bytes.substr(0, 4)), number_of(DType::kF32, bytes.substr(4))});
    default:
      return Value(Value::List{number_of(DType::kF64, bytes.substr(0, 8)), number_of(DType::kF64, bytes.substr(8))});
  }
}

}  // namespace

std::string numpy_type_name(const PickleTree& tree, Node type) {
  std::string name(tree.text(tree.item(tree.arguments(type), 0)).substr(0, kLongestName));
  // The state is (version, byte order, ...).
  const auto state = tree.state(type);
  if (!state || tree.kind(*state) != PickleKind::kTuple || tree.count(*state) < 2) return name;
  const Node order = tree.item(*state, 1);
  if (tree.kind(order) != PickleKind::kText || tree.text(order).size() != 1) return name;
  return std::string(tree.text(order)) + name;
}

std::optional<Value> numpy_number(const PickleTree& tree, Node scalar) {
  const Node arguments = tree.arguments(scalar);
  numpy::ElementType type;
  try {
    type = numpy::parse_element_type(numpy_type_name(tree, tree.item(arguments, 0)));
  } catch (const Error&) {
    return std::nullopt;
  }
  const auto pickled = PickledBytes::of(tree, tree.item(arguments, 1));
  const std::size_t size = bits_of(type.dtype) / 8;
  if (!pickled || pickled->most_bytes() > 2 * size) return std::nullopt;
  ChargedString bytes = pickled->read(tree.memory());
  if (bytes.size() != size) return std::nullopt;
  if (type.is_swapped) swap_numbers(bytes, number_bytes(type.dtype));
  return number_of(type.dtype, bytes);
}

bool is_array(const PickleTree& tree, Node node) {
  if (tree.kind(node) != PickleKind::kObject) return false;
  const GlobalKind kind = called_kind(tree, node);
  return kind == GlobalKind::kArray || kind == GlobalKind::kArrayOfBuffer;
}

PickledArray read_array(const PickleTree& tree, Node node, const Limits& limits) {
  const ArrayParts parts =
      called_kind(tree, node) == GlobalKind::kArray ? parts_of_state(tree, node) : parts_of_arguments(tree, node);
  require(tree.kind(parts.type) == PickleKind::kObject && called_kind(tree, parts.type) == GlobalKind::kNumpyType);
  const numpy::ElementType type = numpy::parse_element_type(numpy_type_name(tree, parts.type));
  PickledArray array(tree.memory());
  array.dtype = type.dtype;
  read_shape(tree, parts.shape, limits, array.shape);
  const auto nbytes = contiguous_bytes(array.dtype, array.shape);
  const auto pickled = PickledBytes::of(tree, parts.elements);
  require(nbytes && pickled);
  const auto differ = [&](std::uint64_t found) {
    return corrupt("the array has " + std::to_string(found) + " bytes; its shape takes " + std::to_string(*nbytes));
  };
  if (*nbytes > pickled->most_bytes() || pickled->most_bytes() / 2 > *nbytes) throw differ(pickled->most_bytes());
  array.elements = pickled->read(tree.memory());
  if (array.elements.size() != *nbytes) throw differ(array.elements.size());
  const std::size_t width = bits_of(array.dtype) / 8;
  if (type.is_swapped) swap_numbers(array.elements, number_bytes(array.dtype));
  if (parts.is_fortran) array.elements = row_major(array.elements, array.shape, width, tree.memory());
  return array;
}

}  // namespace weightstore::pytorch
