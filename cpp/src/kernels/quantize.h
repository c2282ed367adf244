#pragma once

#include <cstdint>
#include <vector>

#include "weightstore/quant_scheme.h"

namespace weightstore::kernels {

// Throws what kernels::quantize() throws, except for numbers that are not finite.
void check_quantize(std::uint64_t in_bytes, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape,
                    std::uint64_t out_bytes);

}  // namespace weightstore::kernels
