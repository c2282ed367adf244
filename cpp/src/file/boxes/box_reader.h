#pragma once

// Reads boxes of tensors into strided memory, with several threads.

#include <cstdint>
#include <span>
#include <vector>

#include "file/boxes/box.h"
#include "io/file_ops.h"
#include "weightstore/progress.h"
#include "weightstore/reader.h"

namespace weightstore {

struct WantedBox {
  const Reader* reader = nullptr;
  std::size_t tensor = 0;  // number in the reader's table
  TensorBox box;           // item_bytes and shape describe all bytes of the tensor
  std::byte* out = nullptr;
  std::vector<std::int64_t> byte_strides;  // of `out`, one for each dimension; not negative
};

// Reads each byte of the boxes once, and little else: gaps of up to 8 KiB between runs are read through. Where a reader
// was opened with verification, checks the checksums of the tensors first; a tensor that is read in parts is read once
// more for that. Needs 8 MiB of memory a thread. Throws Error(kInvalidArgument) for boxes that do not fit their tensor,
// and otherwise as Reader::read_many(). After an error the contents of the outputs are undefined.
void read_boxes(std::span<const WantedBox> boxes, unsigned threads, const Progress& progress, io::FileOps& ops);

}  // namespace weightstore
