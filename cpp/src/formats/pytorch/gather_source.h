#pragma once

// A tensor that does not lie in its file as it is read: strided, repeated, of the other byte order, conjugated or
// negated. Its bytes are made from the file's when they are asked for.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "weightstore/byte_source.h"

namespace weightstore::pytorch {

struct Gather {
  struct Dim {
    std::uint64_t size;    // not 0
    std::uint64_t stride;  // in elements of the file
  };
  std::uint64_t begin = 0;  // of the first element, in the file
  std::uint64_t item = 1;   // bytes of an element: 1 to 16
  std::vector<Dim> dims;    // outermost first
  std::uint64_t swap = 1;   // bytes of the numbers to be turned around; 1: none
  // The sign of every number of `sign` bytes (0: none) is changed, or only of the odd ones: imaginary parts.
  std::uint64_t sign = 0;
  bool sign_even = false;
  bool sign_odd = false;
};

// The elements in row-major order. The caller has checked that all of them lie inside `file`, and that their bytes can
// be counted. Reads are as long as their elements lie together, and read through small gaps.
std::shared_ptr<const ByteSource> gather_source(std::shared_ptr<const ByteSource> file, Gather gather);

// Memory that a source of so many dimensions takes, with its place in a table.
std::uint64_t gather_source_bytes(std::size_t rank);

// Where in its file a source made by gather_source() has its first element; nullopt for any other source.
std::optional<std::uint64_t> gathered_from(const ByteSource& source);

}  // namespace weightstore::pytorch
