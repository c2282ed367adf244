#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weightstore/file_contents.h"
#include "weightstore/layout.h"
#include "weightstore/progress.h"

namespace weightstore {

// Puts a layout that check_layout() accepts into `out`, which has the size of the file. Tensors that lie in memory are
// copied by several threads; producers are filled on the calling thread, one after the other. Returns the crc32c of
// each tensor by number; empty when `checksums` is false. Throws as stream_layout() does.
std::vector<std::uint32_t> write_memory(const Layout& layout, std::span<const NewTensor> tensors, bool checksums,
                                        const Progress& progress, MutableBytes out);

}  // namespace weightstore
