#pragma once

// The plan of a file: its header, and the place of every tensor behind it.

#include <cstdint>
#include <string>
#include <vector>

namespace weightstore {

// Which Burn releases shall read a Burnpack file: booleans changed in 0.21, quantization schemes in 0.22. Files with
// neither are the same under all three.
enum class BurnCompat : std::uint8_t { k020, k021, k022 };

// The order of tensors in a SafeTensors file.
enum class TensorOrder : std::uint8_t {
  kCanonical,  // as the reference writes them: by type, then name; every tensor is naturally aligned
  kAsAdded,
};

// What a format makes of contents. Bytes that neither the header nor a placement covers are zero.
struct Layout {
  struct Placement {
    std::size_t tensor;   // number in FileContents::tensors()
    std::uint64_t begin;  // absolute position in the file
    std::uint64_t end;
  };
  std::string header;                 // from byte 0 on
  std::vector<Placement> placements;  // ascending, disjoint, behind the header
  std::uint64_t file_size = 0;
};

}  // namespace weightstore
