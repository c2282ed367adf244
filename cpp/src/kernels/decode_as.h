#pragma once

// The parts of kernels::dequantize(), for callers that work on several threads.

#include <cstdint>

#include "kernels/number_decoder.h"
#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"

namespace weightstore::kernels {

// Throws what kernels::dequantize() throws for `to`.
void check_type(DType to);

// Throws what kernels::dequantize() throws for `to`, `first` and the size of `out`.
void check_output(const NumberDecoder& decoder, DType to, std::uint64_t first, ConstBytes out);

// Fills `out` with the elements of `payload` from `first` on. `stream` bypasses the caches, for a large output.
void decode_as(const NumberDecoder& decoder, const std::byte* payload, DType to, std::uint64_t first, MutableBytes out,
               bool stream);

}  // namespace weightstore::kernels
