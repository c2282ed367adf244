#pragma once

// A box that is to be written, and the memory of a thread that writes boxes.

#include <cstdint>

#include "base/strided/strided_memory.h"
#include "file/boxes/box.h"
#include "file/boxes/box_writer.h"
#include "file/boxes/gap_tables.h"
#include "io/checked_io.h"
#include "io/huge_buffer.h"

namespace weightstore {

inline constexpr std::uint64_t kLongRun = 1u << 20;  // below, a direct write of its own does not pay

struct PlannedBox {
  const NewBox* box;
  BoxRuns runs;
  StridedMemory values;
  bool is_long() const { return runs.run_count() == 1 || runs.run_bytes() >= kLongRun; }
};

// Memory of a thread.
struct BoxScratch {
  SharedMutableBytes memory;
  GapTables gaps;

  // Room for `size` bytes that begin `skew` bytes into a page.
  MutableBytes room(std::uint64_t skew, std::size_t size) {
    if (memory.bytes.empty()) memory = io::allocate_bulk(io::kChunkBytes + io::kDirectAlignment);
    return memory.bytes.subspan(skew, size);
  }
};

}  // namespace weightstore
