#pragma once

// Puts a planned file into a sink: header, gaps and tensors in ascending order, each tensor from its own memory.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/file_sink.h"
#include "weightstore/error.h"
#include "weightstore/file_contents.h"
#include "weightstore/layout.h"
#include "weightstore/progress.h"

namespace weightstore {

// The error that a tensor's producer has not as many bytes as were planned.
Error wrong_size(const NewTensor& tensor, std::uint64_t found, std::uint64_t planned);

// Throws Error(kInvalidArgument) for a layout that is out of order, or that names a tensor whose producer does not have
// the planned size. Planners make no such layout, but a producer may have changed since.
void check_layout(const Layout& layout, std::span<const NewTensor> tensors);

// Puts a layout that check_layout() accepts into `sink`, and finishes the sink. Returns the crc32c of each tensor by
// number; empty when `checksums` is false. Throws Error(kInvalidArgument) that names a tensor whose producer
// does not have the planned size.
std::vector<std::uint32_t> stream_layout(const Layout& layout, std::span<const NewTensor> tensors, bool checksums,
                                         const Progress& progress, FileSink& sink);

// The same file in memory; checks the layout first. Computes checksums if `checksums` is not null.
std::vector<std::byte> stream_memory(const Layout& layout, std::span<const NewTensor> tensors, const Progress& progress,
                                     std::vector<std::uint32_t>* checksums);

}  // namespace weightstore
