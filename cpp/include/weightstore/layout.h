#pragma once

// The plan of a file: its header, and the place of every tensor behind it.

#include <cstdint>
#include <string>
#include <vector>

namespace weightstore {

// What a format makes of a Writer's contents. Bytes that neither the header nor a placement covers are zero.
struct Layout {
  struct Placement {
    std::size_t tensor;   // number in Writer::tensors()
    std::uint64_t begin;  // absolute position in the file
    std::uint64_t end;
  };
  std::string header;                 // from byte 0 on
  std::vector<Placement> placements;  // ascending, disjoint, behind the header
  std::uint64_t file_size = 0;
};

}  // namespace weightstore
