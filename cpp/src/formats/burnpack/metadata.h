#pragma once

// The CBOR part of a Burnpack file, to a table.

#include <cstdint>

#include "formats/header_text.h"
#include "weightstore/read_options.h"
#include "weightstore/tensor.h"

namespace weightstore::burnpack {

struct Metadata {
  TensorTable table;               // without source, dialect and lookup: finish() is the caller's
  std::uint64_t data_length = 0;   // the largest end of a tensor, counted from the data section
  std::uint64_t tensor_bytes = 0;  // of all tensors together; saturates
  bool misaligned = false;         // some tensor does not begin on a multiple of 256
  bool has_plain_bool = false;     // a boolean as 0.20 spells it
  bool has_bool_map = false;       // a boolean as 0.21 spells it
  bool has_old_scheme = false;     // a quantization scheme as 0.21 spells it
  bool has_new_scheme = false;     // a quantization scheme as 0.22 spells it
};

// Parses and checks all that can be checked without knowing the file's size. Tensors' ranges are counted from
// `data_begin`. `first_offset` is the place of `cbor` in the file, for errors. `newest` is the release of schemes as
// 0.22 spells them.
Metadata parse_metadata(const HeaderText& cbor, std::uint64_t first_offset, std::uint64_t data_begin,
                        const Limits& limits, BurnRelease newest = kNewestStableBurn);

}  // namespace weightstore::burnpack
