#pragma once

// How an encoded value of typed metadata is passed over: the one place that knows where a value ends.

#include <cstdint>
#include <string>

#include "base/corrupt.h"
#include "weightstore/typed_metadata.h"

namespace weightstore {

inline MetadataType checked_type(std::uint32_t number) {
  if (number < kMetadataTypeCount) return static_cast<MetadataType>(number);
  throw corrupt("a value has the type " + std::to_string(number) + "; the types of GGUF are 0 to 12");
}

// A text takes at least its length, an array the type and number of its items.
inline std::uint64_t least_bytes(MetadataType type) {
  if (type == MetadataType::kString) return 8;
  if (type == MetadataType::kArray) return 12;
  return bytes_of(type);
}

// Moves `in` behind a value. `in` throws when it ends before the value does. It has the functions
//   std::uint32_t u32(); std::uint64_t u64();                   // read and pass over a number
//   void numbers(std::size_t width, std::uint64_t count);       // pass over numbers
//   void bytes(std::uint64_t count);                            // pass over text
//   std::uint64_t left() const;                                 // bytes that may follow
template <class Cursor>
void walk_value(Cursor& in, MetadataType type, unsigned depth = 0) {
  if (const std::size_t width = bytes_of(type); width != 0) return in.numbers(width, 1);
  if (type == MetadataType::kString) return in.bytes(in.u64());
  if (depth == kMaxMetadataDepth) {
    throw corrupt("arrays are nested more than " + std::to_string(kMaxMetadataDepth) + " deep");
  }
  const MetadataType item = checked_type(in.u32());
  const std::uint64_t count = in.u64();
  if (count > in.left() / least_bytes(item)) {
    throw corrupt("an array has " + std::to_string(count) + " items of " + std::string(name_of(item)) + ", but only " +
                  std::to_string(in.left()) + " bytes follow");
  }
  if (const std::size_t width = bytes_of(item); width != 0) return in.numbers(width, count);
  for (std::uint64_t i = 0; i < count; ++i) walk_value(in, item, depth + 1);
}

}  // namespace weightstore
