// Any bytes: decoded or refused. What was decoded is encoded and decoded to the same.

#include <cstddef>
#include <cstdint>
#include <string>

#include "bounds.h"
#include "codec/cbor.h"
#include "fuzzing.h"
#include "hex.h"
#include "weightstore/error.h"

using namespace weightstore;

namespace {

// Whether the cursor alone, which is what reads files, can walk over the input.
bool skips(ConstBytes bytes) {
  const auto walk = [](ConstBytes whole) {
    CborCursor cursor(whole);
    cursor.skip_value();
    return cursor.at_end();
  };
  static Bounds bounds("walk", std::string_view("\0", 1), [&](std::string_view whole) { walk(bytes_of(whole)); });
  try {
    return bounds.run(bytes.size(), [&] { return walk(bytes); });
  } catch (const Error& error) {
    require(error.offset().has_value() && *error.offset() <= bytes.size());
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const bool well_formed = skips(bytes);
  // No file is opened by way of a tree, so that trees may take more. An entry of two bytes is a pair of values and the
  // encoding of a key, which is compared with those of other keys: 64 bytes, in lists that have their old and their new
  // memory at once when they grow. A key that is itself a map is encoded once for each of up to 128 maps around it.
  constexpr Bounds::Factors kTree{.peak = 96, .allocated = 8 * CborCursor::kMaxDepth, .moved = 2048, .steps = 4096};
  static constexpr std::string_view kZero("\0", 1);
  static Bounds decode("decode", kZero, [](std::string_view whole) { cbor_decode(bytes_of(whole)); }, kTree);
  static Bounds encode("encode", kZero, [](std::string_view) { cbor_encode(Value(0)); }, kTree);
  std::string encoded;
  try {
    const Value value = decode.run(size, [&] { return cbor_decode(bytes); });
    encoded = encode.run(size, [&] { return cbor_encode(value); });
  } catch (const Error& error) {
    require(error.code() != ErrorCode::kInvalidArgument);
    require(error.offset().has_value() && *error.offset() <= size);
    return 0;
  }
  require(well_formed);
  require(encoded.size() <= 5 * size);  // at most a half that is written as a double because it is a signalling NaN
  const ConstBytes again(reinterpret_cast<const std::byte*>(encoded.data()), encoded.size());
  require(cbor_encode(cbor_decode(again)) == encoded);
  return 0;
}
