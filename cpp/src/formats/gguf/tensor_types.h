#pragma once

// The element types of GGUF and their numbers in files.

#include <cstdint>
#include <optional>

#include "weightstore/dtype.h"

namespace weightstore::gguf {

// nullopt for a number that stands for no type, such as those of types that ggml has removed.
std::optional<DType> type_of_number(std::uint32_t number);

// nullopt for a type that GGUF does not have.
std::optional<std::uint32_t> number_of_type(DType dtype);

}  // namespace weightstore::gguf
