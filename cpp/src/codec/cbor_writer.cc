#include <bit>

#include "codec/cbor.h"

namespace weightstore {
namespace {

// Major types.
constexpr unsigned kUnsignedInt = 0;
constexpr unsigned kNegativeInt = 1;
constexpr unsigned kByteString = 2;
constexpr unsigned kTextString = 3;

// The first bytes of floats.
constexpr char kHalf = '\xF9';
constexpr char kSingle = '\xFA';
constexpr char kDouble = '\xFB';

// The half with exactly this value, if there is one. A NaN keeps its bits or stays wide.
bool narrow_to_half(double x, std::uint16_t& half) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto sign = static_cast<std::uint16_t>(bits >> 48 & 0x8000);
  const auto exponent = static_cast<int>(bits >> 52 & 0x7FF) - 1023;
  const std::uint64_t mantissa = bits & 0xFFFFFFFFFFFFF;
  if (exponent == -1023 && mantissa == 0) {
    half = sign;
    return true;
  }
  if (exponent == 1024 || (exponent >= -14 && exponent <= 15)) {
    if (mantissa & 0x3FFFFFFFFFF) return false;
    const auto narrow = static_cast<unsigned>(exponent == 1024 ? 0x1F : exponent + 15);
    half = static_cast<std::uint16_t>(sign | narrow << 10 | mantissa >> 42);
    return true;
  }
  if (exponent < -24 || exponent > -15) return false;
  // Subnormal: the value is a multiple of 2^-24.
  const std::uint64_t significand = mantissa | std::uint64_t{1} << 52;
  const int shift = 52 - (exponent + 24);
  if (significand & ((std::uint64_t{1} << shift) - 1)) return false;
  half = static_cast<std::uint16_t>(sign | significand >> shift);
  return true;
}

}  // namespace

void CborWriter::write_big_endian(std::uint64_t n, unsigned bytes) {
  for (unsigned shift = 8 * bytes; shift > 0;) {
    shift -= 8;
    out_.push_back(static_cast<char>(n >> shift & 0xFF));
  }
}

void CborWriter::write_head(unsigned major, std::uint64_t argument) {
  if (argument < 24) {
    out_.push_back(static_cast<char>(major << 5 | argument));
    return;
  }
  const unsigned log_bytes = argument <= 0xFF ? 0 : argument <= 0xFFFF ? 1 : argument <= 0xFFFFFFFF ? 2 : 3;
  out_.push_back(static_cast<char>(major << 5 | (24 + log_bytes)));
  write_big_endian(argument, 1u << log_bytes);
}

void CborWriter::write_int(std::int64_t n) {
  if (n >= 0) {
    write_head(kUnsignedInt, static_cast<std::uint64_t>(n));
  } else {
    write_head(kNegativeInt, static_cast<std::uint64_t>(-1 - n));
  }
}

void CborWriter::write_float(double x) {
  std::uint16_t half = 0;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const bool signalling = x != x && (bits & std::uint64_t{1} << 51) == 0;
  if (!signalling && narrow_to_half(x, half)) {
    out_.push_back(kHalf);
    write_big_endian(half, 2);
    return;
  }
  // Out of a float's range the conversion gives an infinity, which then differs.
  const auto single = static_cast<float>(x);
  if (!signalling && std::bit_cast<std::uint64_t>(static_cast<double>(single)) == bits) {
    out_.push_back(kSingle);
    write_big_endian(std::bit_cast<std::uint32_t>(single), 4);
    return;
  }
  out_.push_back(kDouble);
  write_big_endian(bits, 8);
}

void CborWriter::write_text(std::string_view text) {
  write_head(kTextString, text.size());
  out_.append(text);
}

void CborWriter::write_bytes(ConstBytes bytes) {
  write_head(kByteString, bytes.size());
  out_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace weightstore
