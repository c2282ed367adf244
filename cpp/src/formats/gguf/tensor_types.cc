#include "formats/gguf/tensor_types.h"

#include <array>

namespace weightstore::gguf {
namespace {

struct Numbered {
  std::uint32_t number;
  DType dtype;
};

constexpr std::array kTypes = {
    Numbered{0, DType::kF32},     Numbered{1, DType::kF16},      Numbered{2, DType::kQ4_0},
    Numbered{3, DType::kQ4_1},    Numbered{6, DType::kQ5_0},     Numbered{7, DType::kQ5_1},
    Numbered{8, DType::kQ8_0},    Numbered{9, DType::kQ8_1},     Numbered{10, DType::kQ2_K},
    Numbered{11, DType::kQ3_K},   Numbered{12, DType::kQ4_K},    Numbered{13, DType::kQ5_K},
    Numbered{14, DType::kQ6_K},   Numbered{15, DType::kQ8_K},    Numbered{16, DType::kIQ2_XXS},
    Numbered{17, DType::kIQ2_XS}, Numbered{18, DType::kIQ3_XXS}, Numbered{19, DType::kIQ1_S},
    Numbered{20, DType::kIQ4_NL}, Numbered{21, DType::kIQ3_S},   Numbered{22, DType::kIQ2_S},
    Numbered{23, DType::kIQ4_XS}, Numbered{24, DType::kI8},      Numbered{25, DType::kI16},
    Numbered{26, DType::kI32},    Numbered{27, DType::kI64},     Numbered{28, DType::kF64},
    Numbered{29, DType::kIQ1_M},  Numbered{30, DType::kBF16},    Numbered{34, DType::kTQ1_0},
    Numbered{35, DType::kTQ2_0},  Numbered{39, DType::kMXFP4},   Numbered{40, DType::kNVFP4},
    Numbered{41, DType::kQ1_0},
};

}  // namespace

std::optional<DType> type_of_number(std::uint32_t number) {
  for (const Numbered& type : kTypes) {
    if (type.number == number) return type.dtype;
  }
  return std::nullopt;
}

std::optional<std::uint32_t> number_of_type(DType dtype) {
  for (const Numbered& type : kTypes) {
    if (type.dtype == dtype) return type.number;
  }
  return std::nullopt;
}

}  // namespace weightstore::gguf
