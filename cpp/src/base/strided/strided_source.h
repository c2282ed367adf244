#pragma once

// A source for a tensor whose elements are not in row-major order in the file, or not in the byte order of this
// machine.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/strided/strided_reader.h"
#include "weightstore/byte_source.h"

namespace weightstore {

// A source of the elements in row-major order. Each read_at() gathers elements from `file`, which the source keeps
// open. It has no views. The caller has checked what StridedReader requires.
std::shared_ptr<const ByteSource> strided_source(std::shared_ptr<const ByteSource> file, StridedElements elements);

// How much heap memory a source of this rank takes, including its place in a TensorTable.
std::uint64_t strided_source_bytes(std::size_t rank);

// The offset in the file of element [0, 0, ...] of a source that strided_source() made; nullopt for any other source.
std::optional<std::uint64_t> strided_source_begin(const ByteSource& source);

}  // namespace weightstore
