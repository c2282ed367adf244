#include "kernels/blocks/decode_blocks.h"
#include "kernels/blocks/portable_codes.h"
// After the functions that it uses.
#include "kernels/blocks/block_types.h"

namespace weightstore::kernels {
namespace {

template <class Type>
struct Portable {
  static constexpr int kGroups = Type::kElements / Type::kGroup;

  static void run(const std::byte* blocks, std::size_t count, float* out) {
    const auto* block = reinterpret_cast<const std::uint8_t*>(blocks);
    for (; count > 0; --count, block += Type::kBytes, out += Type::kElements) {
      std::int8_t buffer[Type::kElements];
      float scales[kGroups];
      float shifts[kGroups];
      const std::int8_t* codes = Type::unpack(block, buffer);
      Type::scales(block, scales, shifts);
      for (int i = 0; i < Type::kElements; ++i) {
        const int group = i / Type::kGroup;
        const float scaled = scales[group] * static_cast<float>(codes[i]);
        if constexpr (Type::kRule == Rule::kScale) out[i] = scaled;
        if constexpr (Type::kRule == Rule::kMinus) out[i] = scaled - shifts[group];
        if constexpr (Type::kRule == Rule::kPlus) out[i] = scaled + shifts[group];
      }
    }
  }
};

}  // namespace

DecodeBlocks portable_decoder(DType dtype) { return decoder_for<Portable>(dtype); }

DecodeBlocks block_decoder(DType dtype) {
  const DecodeBlocks vector = vector_decoder(dtype);
  return vector != nullptr ? vector : portable_decoder(dtype);
}

}  // namespace weightstore::kernels
