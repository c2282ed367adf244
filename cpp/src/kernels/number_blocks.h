#pragma once

// Loops over the numbers of a tensor, block by block.

#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/numbers.h"
#include "weightstore/byte_source.h"

namespace weightstore::kernels {

inline constexpr std::size_t kBlockNumbers = 2048;  // even, for types with two numbers in a byte

// Calls look(numbers, count) with the numbers of `bytes` as T, which holds them. F32 as float and F64 as double are
// looked at where they are, at any address.
template <class T, class Look>
void for_blocks_of(DType type, ConstBytes bytes, const Look& look) {
  const std::size_t total = bytes.size() * 8 / bits_of(type);
  const bool in_place = type == (sizeof(T) == sizeof(float) ? DType::kF32 : DType::kF64);
  alignas(64) std::array<T, kBlockNumbers> decoded;
  for (std::size_t done = 0; done < total; done += kBlockNumbers) {
    const std::size_t count = std::min(kBlockNumbers, total - done);
    const std::byte* at = bytes.data() + done * bits_of(type) / 8;
    if (in_place) {
      look(reinterpret_cast<const T*>(at), count);
    } else {
      decode_numbers(type, at, count, decoded.data());
      look(decoded.data(), count);
    }
  }
}

// The same with floats for types whose numbers float holds, and else with doubles.
template <class Look>
void for_blocks(DType type, ConstBytes bytes, const Look& look) {
  if (number_kind(type) == NumberKind::kFloat) {
    for_blocks_of<float>(type, bytes, look);
  } else {
    for_blocks_of<double>(type, bytes, look);
  }
}

}  // namespace weightstore::kernels
