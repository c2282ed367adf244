#include <algorithm>
#include <memory>
#include <string>

#include "kernels/blocks/block_numbers.h"
#include "kernels/cast_kernels.h"
#include "kernels/decode_as.h"
#include "kernels/quant_layout.h"
#include "kernels/transpose_view.h"
#include "weightstore/error.h"
#include "weightstore/kernels.h"

namespace weightstore {

void kernels::check_type(DType to) {
  if (can_cast(DType::kF32, to)) return;
  throw Error(ErrorCode::kUnsupported,
              "quantized tensors become F32, F64, F16 or BF16, not " + std::string(name_of(to)));
}

void kernels::check_output(const NumberDecoder& decoder, DType to, std::uint64_t first, ConstBytes out) {
  check_type(to);
  const std::size_t item = bits_of(to) / 8;
  if (out.size() % item == 0 && first <= decoder.size() && out.size() / item <= decoder.size() - first) return;
  throw Error(ErrorCode::kInvalidArgument, std::to_string(out.size()) + " bytes of " + std::string(name_of(to)) +
                                               " from element " + std::to_string(first) + " on; the tensor has " +
                                               std::to_string(decoder.size()) + " elements");
}

void kernels::decode_as(const NumberDecoder& decoder, const std::byte* payload, DType to, std::uint64_t first,
                        MutableBytes out, bool stream) {
  const CastKernel cast = cast_kernel(DType::kF32, to);
  const std::size_t item = bits_of(to) / 8;
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(out.data()) % alignof(float) == 0;
  if (cast == nullptr && is_aligned) {
    return decoder.decode(payload, first, out.size() / item, reinterpret_cast<float*>(out.data()), stream);
  }
  const auto step = static_cast<std::size_t>(std::min<std::uint64_t>(decoder.step(), out.size() / item));
  const auto numbers = std::make_unique_for_overwrite<float[]>(step);
  while (!out.empty()) {
    const std::size_t count = std::min(out.size() / item, step);
    decoder.decode(payload, first, count, numbers.get(), false);
    const auto* bytes = reinterpret_cast<const std::byte*>(numbers.get());
    if (cast != nullptr) {
      cast(bytes, out.data(), count);
    } else {
      std::copy_n(bytes, count * item, out.data());
    }
    first += count;
    out = out.subspan(count * item);
  }
}

void kernels::dequantize(ConstBytes payload, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape,
                         DType to, std::uint64_t first, MutableBytes out) {
  const QuantLayout layout(scheme, shape, payload.size());
  check_output(layout, to, first, out);
  decode_as(layout, payload.data(), to, first, out, out.size() >= kStreamBytes);
}

void kernels::dequantize(ConstBytes payload, DType from, DType to, std::uint64_t first, MutableBytes out) {
  const BlockNumbers numbers(from, payload.size());
  check_output(numbers, to, first, out);
  decode_as(numbers, payload.data(), to, first, out, out.size() >= kStreamBytes);
}

}  // namespace weightstore
