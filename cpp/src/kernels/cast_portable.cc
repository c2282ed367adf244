#include <cstring>

#include "kernels/cast_kernels.h"
#include "kernels/cast_table.h"
#include "kernels/half.h"

namespace weightstore::kernels {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Number to the bits of an F32, and back.
template <DType kType>
std::uint32_t widened(const std::byte* at) {
  if constexpr (kType == DType::kF16) return widen_f16(load<std::uint16_t>(at));
  if constexpr (kType == DType::kBF16) return widen_bf16(load<std::uint16_t>(at));
  if constexpr (kType == DType::kF32) return load<std::uint32_t>(at);
  if constexpr (kType == DType::kF64) return std::bit_cast<std::uint32_t>(static_cast<float>(load<double>(at)));
}

template <DType kType>
auto narrowed(std::uint32_t bits) {
  if constexpr (kType == DType::kF16) return narrow_to_f16(bits);
  if constexpr (kType == DType::kBF16) return narrow_to_bf16(bits);
  if constexpr (kType == DType::kF32) return bits;
  if constexpr (kType == DType::kF64) return static_cast<double>(std::bit_cast<float>(bits));
}

template <DType kFrom, DType kTo>
struct Portable {
  static void run(const std::byte* in, std::byte* out, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = narrowed<kTo>(widened<kFrom>(in + i * kBytes<kFrom>));
      std::memcpy(out + i * kBytes<kTo>, &value, sizeof value);
    }
  }
};

}  // namespace

CastKernel portable_cast(DType from, DType to) { return kernel_for<Portable>(from, to); }

}  // namespace weightstore::kernels
