#include "table/initializer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numbers>
#include <string>

#include "kernels/half.h"
#include "weightstore/error.h"

// A counter-based generator makes the values: word k of a row is the k-th output of SplitMix64, started with a key that
// is made of seed and id. It has no state, so that any row can be made at any time and on any shard. The scheme must
// not change: after an update, new rows of running jobs would start with other values.

namespace weightstore::table {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;

constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

constexpr std::uint64_t word(std::uint64_t key, std::uint64_t counter) { return mix(key + (counter + 1) * kGolden); }

// In [0, 1), 53 bits.
constexpr double fraction(std::uint64_t key, std::uint64_t counter) {
  return static_cast<double>(word(key, counter) >> 11) * 0x1p-53;
}

template <class T>
void store(std::byte* out, T value) {
  std::memcpy(out, &value, sizeof value);
}

bool is_random_float(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

std::uint16_t f16_bits(double value) {
  return kernels::narrow_to_f16(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
}
std::uint16_t bf16_bits(double value) {
  return kernels::narrow_to_bf16(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
}
double from_f16(std::uint16_t bits) { return std::bit_cast<float>(kernels::widen_f16(bits)); }
double from_bf16(std::uint16_t bits) { return std::bit_cast<float>(kernels::widen_bf16(bits)); }

void store_float(DType dtype, double value, std::byte* out) {
  switch (dtype) {
    case DType::kF64:
      return store(out, value);
    case DType::kF16:
      return store(out, f16_bits(value));
    case DType::kBF16:
      return store(out, bf16_bits(value));
    default:
      return store(out, static_cast<float>(value));
  }
}

// Rounded to the type.
double rounded(DType dtype, double value) {
  switch (dtype) {
    case DType::kF64:
      return value;
    case DType::kF16:
      return from_f16(f16_bits(value));
    case DType::kBF16:
      return from_bf16(bf16_bits(value));
    default:
      return static_cast<float>(value);
  }
}

// The bits of the next smaller number of F16 or BF16. The sign is the highest bit.
std::uint16_t bits_below(std::uint16_t bits) {
  constexpr std::uint16_t kSign = 0x8000;
  if (bits == 0) return kSign | 1;
  return static_cast<std::uint16_t>((bits & kSign) != 0 ? bits + 1 : bits - 1);
}

// The next smaller number of the type.
double next_below(DType dtype, double value) {
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  switch (dtype) {
    case DType::kF64:
      return std::nextafter(value, kLowest);
    case DType::kF16:
      return from_f16(bits_below(f16_bits(value)));
    case DType::kBF16:
      return from_bf16(bits_below(bf16_bits(value)));
    default:
      return std::nextafter(static_cast<float>(value), static_cast<float>(kLowest));
  }
}

double largest_below(DType dtype, double limit) {
  const double nearest = rounded(dtype, limit);
  return nearest < limit ? nearest : next_below(dtype, nearest);
}

double least_from(DType dtype, double limit) {
  const double nearest = rounded(dtype, limit);
  return nearest >= limit ? nearest : -next_below(dtype, -nearest);
}

template <class T>
bool store_integer(double value, std::byte* out) {
  // The first number beyond the range is a power of two, which a double represents exactly; the last one inside may not
  // be.
  const double beyond = std::ldexp(1.0, std::numeric_limits<T>::digits);
  const double least = std::is_signed_v<T> ? -beyond : 0.0;
  if (!(value >= least && value < beyond) || std::trunc(value) != value) return false;
  store(out, static_cast<T>(value));
  return true;
}

// False when the type cannot represent the value.
bool store_constant(DType dtype, double value, std::byte* out) {
  if (is_random_float(dtype)) {
    store_float(dtype, value, out);
    return true;
  }
  switch (dtype) {
    case DType::kBool:
      return (value == 0 || value == 1) && store_integer<std::uint8_t>(value, out);
    case DType::kU8:
      return store_integer<std::uint8_t>(value, out);
    case DType::kI8:
      return store_integer<std::int8_t>(value, out);
    case DType::kU16:
      return store_integer<std::uint16_t>(value, out);
    case DType::kI16:
      return store_integer<std::int16_t>(value, out);
    case DType::kU32:
      return store_integer<std::uint32_t>(value, out);
    case DType::kI32:
      return store_integer<std::int32_t>(value, out);
    case DType::kU64:
      return store_integer<std::uint64_t>(value, out);
    case DType::kI64:
      return store_integer<std::int64_t>(value, out);
    default:
      return value == 0;  // zero is all bits zero in the other types, too
  }
}

std::string text_of(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

Error bad_initializer(ErrorCode code, const SlotInfo& slot, const std::string& why) {
  return Error(code, "slot '" + printable(slot.name) + "' of " + std::string(name_of(slot.dtype)) + ": " + why);
}

}  // namespace

RowInitializer::RowInitializer(const SlotInfo& slot, const Initializer& initializer)
    : initializer_(initializer),
      dtype_(slot.dtype),
      elements_(slot.row_bytes * 8 / bits_of(slot.dtype)),
      element_bytes_(bits_of(slot.dtype) / 8) {
  check(slot);
  if (initializer.kind == Initializer::Kind::kConstant) {
    constant_.resize(slot.row_bytes);
    for (std::uint64_t i = 0; i < elements_; ++i) {
      if (store_constant(dtype_, initializer.a, constant_.data() + i * element_bytes_)) continue;
      throw bad_initializer(ErrorCode::kInvalidArgument, slot,
                            "cannot be filled with " + text_of(initializer.a) + "; fill it with 0 and write values");
    }
  } else if (initializer.kind == Initializer::Kind::kUniform) {
    // Rounding could move values out of the bounds.
    least_ = least_from(dtype_, initializer.a);
    most_ = largest_below(dtype_, initializer.b);
    if (least_ > most_) least_ = most_ = rounded(dtype_, initializer.a);
  }
}

void RowInitializer::check(const SlotInfo& slot) const {
  const double a = initializer_.a;
  const double b = initializer_.kind == Initializer::Kind::kConstant ? 0 : initializer_.b;
  if (is_random_float(dtype_)) {
    for (const double number : {a, b}) {
      if (!std::isfinite(number) || std::isfinite(rounded(dtype_, number))) continue;
      throw bad_initializer(ErrorCode::kInvalidArgument, slot,
                            "cannot hold " + text_of(number) + "; its numbers end with " +
                                text_of(largest_below(dtype_, std::numeric_limits<double>::infinity())));
    }
  }
  if (initializer_.kind == Initializer::Kind::kConstant) return;
  if (!is_random_float(dtype_)) {
    throw bad_initializer(ErrorCode::kUnsupported, slot, "random values are for F16, BF16, F32 and F64");
  }
  const bool sensible = initializer_.kind == Initializer::Kind::kUniform ? a <= b && std::isfinite(b - a) : b >= 0;
  if (!std::isfinite(a) || !std::isfinite(b) || !sensible) {
    throw bad_initializer(ErrorCode::kInvalidArgument, slot,
                          "random values from " + text_of(a) + ", " + text_of(b) +
                              "; expected lower and upper bound, or mean and standard deviation");
  }
}

void RowInitializer::fill(std::int64_t id, std::byte* row) const {
  if (!constant_.empty()) {
    std::memcpy(row, constant_.data(), constant_.size());
    return;
  }
  // Mixed one after the other: otherwise (7, 11) and (11, 7) would give the same key.
  const std::uint64_t key = mix(mix(initializer_.seed + kGolden) + static_cast<std::uint64_t>(id));
  switch (initializer_.kind) {
    case Initializer::Kind::kConstant:
      break;
    case Initializer::Kind::kUniform:
      for (std::uint64_t i = 0; i < elements_; ++i) store_float(dtype_, uniform(key, i), row + i * element_bytes_);
      break;
    case Initializer::Kind::kNormal:
      for (std::uint64_t i = 0; i < elements_; i += 2) {
        const double radius = initializer_.b * std::sqrt(-2 * std::log1p(-fraction(key, i)));
        const double angle = 2 * std::numbers::pi * fraction(key, i + 1);
        store_float(dtype_, initializer_.a + radius * std::cos(angle), row + i * element_bytes_);
        if (i + 1 == elements_) break;
        store_float(dtype_, initializer_.a + radius * std::sin(angle), row + (i + 1) * element_bytes_);
      }
      break;
    case Initializer::Kind::kTruncatedNormal:
      for (std::uint64_t i = 0; i < elements_; ++i) store_float(dtype_, truncated(key, i), row + i * element_bytes_);
      break;
  }
}

double RowInitializer::uniform(std::uint64_t key, std::uint64_t counter) const {
  return std::clamp(initializer_.a + (initializer_.b - initializer_.a) * fraction(key, counter), least_, most_);
}

double RowInitializer::truncated(std::uint64_t key, std::uint64_t element) const {
  constexpr std::uint64_t kAttempts = 32;  // one in 22 fails
  const std::uint64_t own = word(key, element);
  for (std::uint64_t i = 0; i < kAttempts; ++i) {
    const double normal =
        std::sqrt(-2 * std::log1p(-fraction(own, 2 * i))) * std::cos(2 * std::numbers::pi * fraction(own, 2 * i + 1));
    if (std::abs(normal) <= 2) return initializer_.a + initializer_.b * normal;
  }
  return initializer_.a;
}

}  // namespace weightstore::table

namespace weightstore {

Initializer::Kind initializer_kind(std::string_view name) {
  if (name == "zeros" || name == "constant") return Initializer::Kind::kConstant;
  if (name == "uniform") return Initializer::Kind::kUniform;
  if (name == "normal") return Initializer::Kind::kNormal;
  if (name == "truncated_normal") return Initializer::Kind::kTruncatedNormal;
  throw Error(ErrorCode::kInvalidArgument,
              "no initializer '" + printable(name) + "'; there are zeros, constant, uniform, normal, truncated_normal");
}

}  // namespace weightstore
