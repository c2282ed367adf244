// What the blocks of GGUF's quantized types hold: the code of every element, and the numbers by which a group of codes
// is scaled and shifted. docs/formats.md, "GGUF numbers", has the rules.
//
// decode_portable.cc and decode_vector.cc include this file, each after its own portable_codes.h or vector_codes.h.
// These define WEIGHTSTORE_KERNEL (attributes of every function), half_to_float() and the functions that take codes
// apart. So this file has no include guard, and all of it is in an anonymous namespace of the file that includes it.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "weightstore/dtype.h"

namespace weightstore::kernels {
namespace {

// How a number is made of its code.
enum class Rule : std::uint8_t {
  kScale,  // scale * code
  kMinus,  // scale * code - shift
  kPlus,   // scale * code + shift
};

// The codes of a block. Every type has
//   kElements, kBytes: of a block; kGroup: elements with one scale; kRule;
//   unpack(block, codes): fills `codes`, and returns them, or where they are in the block;
//   scales(block, scales, shifts): one of each for a group. `shifts` is not used with Rule::kScale.

WEIGHTSTORE_KERNEL inline float half_at(const std::uint8_t* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  if constexpr (std::endian::native == std::endian::big) bits = __builtin_bswap16(bits);
  return half_to_float(bits);
}

}  // namespace
}  // namespace weightstore::kernels

#include "kernels/blocks/small_blocks.h"
#include "kernels/blocks/super_blocks.h"

namespace weightstore::kernels {
namespace {

// Decoder<Type>::run for a type that is known at run time; null when it is not dequantized.
template <template <class> class Decoder>
DecodeBlocks decoder_for(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return Decoder<Q4_0>::run;
    case DType::kQ4_1:
      return Decoder<Q4_1>::run;
    case DType::kQ5_0:
      return Decoder<Q5_0>::run;
    case DType::kQ5_1:
      return Decoder<Q5_1>::run;
    case DType::kQ8_0:
      return Decoder<Q8_0>::run;
    case DType::kQ2_K:
      return Decoder<Q2_K>::run;
    case DType::kQ3_K:
      return Decoder<Q3_K>::run;
    case DType::kQ4_K:
      return Decoder<Q4_K>::run;
    case DType::kQ5_K:
      return Decoder<Q5_K>::run;
    case DType::kQ6_K:
      return Decoder<Q6_K>::run;
    case DType::kIQ4_NL:
      return Decoder<IQ4_NL>::run;
    case DType::kIQ4_XS:
      return Decoder<IQ4_XS>::run;
    case DType::kTQ1_0:
      return Decoder<TQ1_0>::run;
    case DType::kTQ2_0:
      return Decoder<TQ2_0>::run;
    case DType::kMXFP4:
      return Decoder<MXFP4>::run;
    case DType::kNVFP4:
      return Decoder<NVFP4>::run;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace weightstore::kernels
