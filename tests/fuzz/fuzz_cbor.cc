// Any bytes: decoded or refused. What was decoded is encoded and decoded to the same.

#include <cstddef>
#include <cstdint>
#include <string>

#include "codec/cbor.h"
#include "fuzzing.h"
#include "weightstore/error.h"

using namespace weightstore;

namespace {

// Whether the cursor alone can walk over the input.
bool skips(ConstBytes bytes) {
  try {
    CborCursor cursor(bytes);
    cursor.skip_value();
    return cursor.at_end();
  } catch (const Error& error) {
    require(error.offset().has_value() && *error.offset() <= bytes.size());
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const bool well_formed = skips(bytes);
  std::string encoded;
  try {
    encoded = cbor_encode(cbor_decode(bytes));
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
