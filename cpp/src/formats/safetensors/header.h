#pragma once

// Constants of docs/formats.md, "SafeTensors".

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "weightstore/dtype.h"

namespace weightstore::safetensors {

inline constexpr std::size_t kLengthBytes = 8;  // the header's length, little-endian
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kHeaderAlignment = 8;  // the header is padded with spaces to this
inline constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1}
                                               << 62;  // what file offsets can say, with room for a header
inline constexpr std::string_view kMetadataKey = "__metadata__";
inline constexpr std::size_t kLongestDType = 11;  // "F8_E4M3FNUZ"
inline constexpr std::string_view kExtension = ".safetensors";

// The reference's words for a tensor of sub-byte elements that does not end on a whole byte.
inline constexpr const char* kMisalignedText =
    "The slice is slicing for subbytes dtypes, and the slice does not end up at a byte boundary, this is invalid.";

// True when the size of such a tensor fits 64 bits but does not end on a whole byte.
inline bool is_misaligned(DType dtype, std::span<const std::uint64_t> shape) {
  std::uint64_t bits = bits_of(dtype);
  for (const std::uint64_t dimension : shape) {
    if (__builtin_mul_overflow(bits, dimension, &bits)) return false;
  }
  return bits % 8 != 0;
}

}  // namespace weightstore::safetensors
