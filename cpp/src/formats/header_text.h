#pragma once

#include <cstdint>
#include <memory>

#include "weightstore/byte_source.h"

namespace weightstore {

// The bytes of a header, copied out of the file once: a file that changes under us cannot change what was checked.
struct HeaderText {
  std::shared_ptr<const char[]> bytes;
  std::size_t size = 0;

  ConstBytes as_bytes() const { return {reinterpret_cast<const std::byte*>(bytes.get()), size}; }
};

// [offset, offset + size) of the source, which the caller has checked to be there.
inline HeaderText read_header_text(const ByteSource& source, std::uint64_t offset, std::size_t size) {
  auto bytes = std::make_unique_for_overwrite<char[]>(size);
  source.read_at(offset, {reinterpret_cast<std::byte*>(bytes.get()), size});
  return {std::move(bytes), size};
}

}  // namespace weightstore
