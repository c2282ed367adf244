#include "weightstore/quant_scheme.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/checked.h"
#include "formats/burnpack/quant_cbor.h"
#include "kernels/quant_codes.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

using kernels::blocks_are_runs;
using kernels::is_float;
using kernels::scale_bytes;
using kernels::value_bits;

// Overflow of any sum or product below is the same error.
std::uint64_t known(std::optional<std::uint64_t> n) {
  if (!n) throw Error(ErrorCode::kLimit, "quantized tensor of 2^64 bytes or more");
  return *n;
}

[[noreturn]] void fail_undefined(const QuantScheme& scheme, const std::string& why) {
  throw Error(ErrorCode::kUnsupported,
              "the length of a payload quantized as " + to_string(scheme) + " is not defined: " + why);
}

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

std::uint64_t product(std::span<const std::uint64_t> factors) {
  std::uint64_t n = 1;
  for (const std::uint64_t factor : factors) n = known(checked_mul(n, factor));
  return n;
}

// The unit that values are packed into. E2M1 is the one type that hardware packs, two to a byte.
std::uint64_t stored_bits(const QuantScheme& scheme) {
  const std::uint64_t bits = value_bits(scheme.value);
  switch (scheme.store) {
    case QuantStore::kNative:
      return bits;
    case QuantStore::kPackedNative:
      return scheme.value == QuantValue::kE2M1 ? 2 * bits : bits;
    case QuantStore::kPackedU32:
      return 32;
  }
  return bits;
}

bool well_formed(const QuantScheme& scheme) {
  if (scheme.store == QuantStore::kNative && scheme.packed_dim != 0) return false;
  if (scheme.block_scale.has_value() == scheme.block.empty()) return false;
  if (scheme.block.size() > burnpack::kMaxBlockDims || std::count(scheme.block.begin(), scheme.block.end(), 0) != 0) {
    return false;
  }
  if (traits_of(scheme.release).has_two_level_scales) return true;
  return scheme.tensor_scale.has_value() != scheme.block_scale.has_value() && scheme.mode == QuantMode::kSymmetric;
}

// All releases count scales alike: one a block, rounded up in every dimension, and those of the whole tensor.
std::uint64_t scales_length(const QuantScheme& scheme, std::span<const std::uint64_t> shape) {
  if (!scheme.block_scale) return scale_bytes(scheme.tensor_scale.value_or(QuantParam::kF32));
  std::span<const std::uint8_t> block(scheme.block);
  while (block.size() > shape.size()) {
    if (block[0] != 1) fail_undefined(scheme, "the block has more dimensions than the tensor");
    block = block.subspan(1);
  }
  const std::size_t whole = shape.size() - block.size();
  std::uint64_t blocks = product(shape.first(whole));
  for (std::size_t i = 0; i < block.size(); ++i) {
    blocks = known(checked_mul(blocks, ceil_div(shape[whole + i], block[i])));
  }
  const std::uint64_t bytes = known(checked_mul(blocks, scale_bytes(*scheme.block_scale)));
  return known(checked_add(bytes, scheme.tensor_scale ? scale_bytes(*scheme.tensor_scale) : 0));
}

// 0.20: values are packed across lines, and their part is rounded up to four bytes.
std::uint64_t values_length_020(const QuantScheme& scheme, std::span<const std::uint64_t> shape) {
  const std::uint64_t bits = stored_bits(scheme);
  if (bits < 8) fail_undefined(scheme, "Burn 0.20 stores no values smaller than a byte unpacked");
  const std::uint64_t units = ceil_div(product(shape), bits / value_bits(scheme.value));
  return known(checked_round_up(known(checked_mul(units, bits / 8)), 4));
}

// 0.22: each line along the packed dimension begins a new unit, and nothing is rounded after that.
std::uint64_t values_length_022(const QuantScheme& scheme, std::span<const std::uint64_t> shape) {
  const std::uint64_t bits = stored_bits(scheme);
  const std::uint64_t per_unit = bits / value_bits(scheme.value);
  std::vector<std::uint64_t> units(shape.begin(), shape.end());
  if (per_unit > 1 && !units.empty()) {
    if (scheme.packed_dim >= units.size()) fail_undefined(scheme, "the packed dimension is not one of the tensor's");
    std::uint64_t& packed = units[units.size() - 1 - static_cast<std::size_t>(scheme.packed_dim)];
    packed = ceil_div(packed, per_unit);
  }
  return known(checked_mul(product(units), ceil_div(bits, 8)));
}

// As releases with or without two levels of scales count it.
std::uint64_t length_as(bool is_new, const QuantScheme& scheme, std::span<const std::uint64_t> shape) {
  if (!well_formed(scheme)) fail_undefined(scheme, "its fields contradict each other");
  const std::uint64_t values = is_new ? values_length_022(scheme, shape) : values_length_020(scheme, shape);
  return known(checked_add(values, scales_length(scheme, shape)));
}

}  // namespace

std::optional<QuantScheme> as_release(const QuantScheme& scheme, BurnRelease release) {
  if (!well_formed(scheme)) return std::nullopt;
  QuantScheme converted = scheme;
  converted.release = release;
  const bool is_new = traits_of(release).has_two_level_scales;
  if (traits_of(scheme.release).has_two_level_scales == is_new) return converted;
  if (is_new) {
    // Its own spelling: one F32 scale is what no scale means, and blocks do not begin with ones.
    if (!converted.block_scale && converted.tensor_scale == QuantParam::kF32) converted.tensor_scale.reset();
    while (converted.block.size() > 1 && converted.block.front() == 1) converted.block.erase(converted.block.begin());
  } else if (!converted.tensor_scale && !converted.block_scale) {
    converted.tensor_scale = QuantParam::kF32;
  }
  if (!well_formed(converted)) return std::nullopt;
  return converted;
}

bool has_same_values(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, BurnRelease release) {
  const BurnTraits& here = traits_of(scheme.release);
  const BurnTraits& there = traits_of(release);
  if (is_float(scheme.value) && scheme.store == QuantStore::kNative &&
      here.native_codes_are_floats != there.native_codes_are_floats) {
    return false;
  }
  return here.blocks_are_rectangles == there.blocks_are_rectangles || blocks_are_runs(scheme.block, shape);
}

std::uint64_t payload_bytes(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape) {
  return length_as(traits_of(scheme.release).has_two_level_scales, scheme, shape);
}

std::string to_string(const QuantScheme& scheme) {
  const auto param_name = [](QuantParam param) {
    return std::string(burnpack::kQuantParams[static_cast<std::size_t>(param)]);
  };
  std::string out(burnpack::kQuantValues[static_cast<std::size_t>(scheme.value)]);
  out += ' ' + param_name(scheme.block_scale ? *scheme.block_scale : scheme.tensor_scale.value_or(QuantParam::kF32));
  out += ' ';
  out += burnpack::kQuantStores[static_cast<std::size_t>(scheme.store)];
  if (scheme.store != QuantStore::kNative) out += '(' + std::to_string(scheme.packed_dim) + ')';
  if (scheme.block_scale) {
    out += " Block[";
    for (std::size_t i = 0; i < scheme.block.size(); ++i) {
      if (i != 0) out += ',';
      out += std::to_string(scheme.block[i]);
    }
    out += ']';
    if (scheme.tensor_scale) out += " under " + param_name(*scheme.tensor_scale) + " Tensor";
  } else {
    out += " Tensor";
  }
  out += ' ';
  out += burnpack::kQuantModes[static_cast<std::size_t>(scheme.mode)];
  return out;
}

bool burnpack::payload_fits(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, std::uint64_t length) {
  for (const bool is_new : {true, false}) {
    try {
      if (length_as(is_new, scheme, shape) == length) return true;
    } catch (const Error&) {
      // Not defined there: the other one may have it.
    }
  }
  return false;
}

bool burnpack::payload_is_defined(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape) {
  try {
    payload_bytes(scheme, shape);
  } catch (const Error& error) {
    return error.code() != ErrorCode::kUnsupported;
  }
  return true;
}

}  // namespace weightstore
