#include "formats/numpy/element_type.h"

#include <array>
#include <bit>
#include <string>

#include "weightstore/error.h"

namespace weightstore::numpy {
namespace {

struct Named {
  std::string_view name;
  DType dtype;
};
constexpr std::array kTypes = {
    Named{"b1", DType::kBool}, Named{"i1", DType::kI8},    Named{"i2", DType::kI16}, Named{"i4", DType::kI32},
    Named{"i8", DType::kI64},  Named{"u1", DType::kU8},    Named{"u2", DType::kU16}, Named{"u4", DType::kU32},
    Named{"u8", DType::kU64},  Named{"f2", DType::kF16},   Named{"f4", DType::kF32}, Named{"f8", DType::kF64},
    Named{"c8", DType::kC64},  Named{"c16", DType::kC128},
};

// Why elements of a kind are not read.
std::string_view refusal_of(char kind) {
  switch (kind) {
    case 'O':
      return "an object array, which is a pickle and can run code when it is loaded; save its values as numbers";
    case 'S':
    case 'a':
    case 'U':
    case 'T':
      return "an array of strings, which are no tensors";
    case 'M':
    case 'm':
      return "an array of dates or times; save its view('i8')";
    case 'V':
      return "an array of raw bytes without a type (numpy saves ml_dtypes.bfloat16 that way); save a view of it, such "
             "as "
             "view('u2')";
    case 'f':
    case 'c':
      return "an array of long doubles, which have another layout on other machines; save it as float64 or complex128";
    default:
      return "an array of a type that is not read";
  }
}

}  // namespace

ElementType parse_element_type(std::string_view descr) {
  std::string_view name = descr;
  char order = '=';
  if (!name.empty() && std::string_view("<>|=").find(name.front()) != std::string_view::npos) {
    order = name.front();
    name.remove_prefix(1);
  }
  for (const Named& type : kTypes) {
    if (name != type.name) continue;
    const char other = std::endian::native == std::endian::little ? '>' : '<';
    return {type.dtype, order == other && bits_of(type.dtype) > 8};
  }
  throw Error(ErrorCode::kUnsupported,
              std::string(refusal_of(name.empty() ? '\0' : name.front())) + " (type '" + printable(descr) + "')");
}

}  // namespace weightstore::numpy
