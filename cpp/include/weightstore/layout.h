#pragma once

// The plan of a file: its header, and the position of every tensor after it.

#include <cstdint>
#include <string>
#include <vector>

namespace weightstore {

// The order of tensors in a SafeTensors file.
enum class TensorOrder : std::uint8_t {
  kCanonical,  // as the reference implementation: by type, then by name; every tensor is naturally aligned
  kAsAdded,
};

// A format makes this plan of a FileContents. Bytes that neither the header nor a placement covers are zero.
struct Layout {
  struct Placement {
    std::size_t tensor;   // number in FileContents::tensors()
    std::uint64_t begin;  // absolute position in the file
    std::uint64_t end;
  };
  std::string header;                 // starts at byte 0
  std::vector<Placement> placements;  // ascending, disjoint, after the header
  std::uint64_t file_size = 0;
};

}  // namespace weightstore
