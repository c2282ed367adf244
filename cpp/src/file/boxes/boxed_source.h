#pragma once

// The bytes of a tensor that lies in several boxes, each of which is one range of a source.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "file/boxes/box.h"
#include "weightstore/byte_source.h"

namespace weightstore {

struct BoxPart {
  BoxRuns runs;
  std::shared_ptr<const ByteSource> source;
  std::uint64_t begin;  // of the box's bytes, in the source
};

// `size` is that of the tensor, which the boxes cover (box_cover.h). The caller has checked that their bytes lie inside
// their sources. `name` is what name() returns. Errors of reading name the source of a box instead.
std::shared_ptr<const ByteSource> boxed_source(std::vector<BoxPart> parts, std::uint64_t size, std::string name);

}  // namespace weightstore
