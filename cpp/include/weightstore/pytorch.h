#pragma once

// Files of torch.save(): their tensors as a table, and everything else as plain data. Reading only.
//
// A pickle is taken for what it says, never for what it does: nothing is imported and nothing is called, whatever the
// file asks for. Each function needs at most 24 times the size of the file, plus Limits::pytorch_memory_bytes, of
// memory, and throws kLimit where a file would take more. docs/formats.md says what is read, docs/security.md what is
// refused.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/read_options.h"
#include "weightstore/tensor.h"
#include "weightstore/value.h"

namespace weightstore::pytorch {

struct Options {
  Opaque opaque = Opaque::kError;
};

// All tensors, under their keys joined by dots. Reads ZIP archives (torch 1.6 and later), streams (0.1.10 to 1.5) and
// tar archives (before). A tensor that is contiguous and of this machine's byte order is a range of `source`; every
// other one has a source of its own that gathers its elements as they are read. Throws kCorrupt, kLimit or
// kUnsupported, with the tensor's name where it has one.
TensorTable read_table(std::shared_ptr<const ByteSource> source, const Limits& limits = {},
                       const Options& options = {});

// The CRC-32 of one storage, as the ZIP archive has it.
struct StorageChecksum {
  std::string name;         // of the record
  std::uint64_t begin = 0;  // its range of the file
  std::uint64_t end = 0;
  std::optional<std::uint32_t> crc;  // none when the writer left it out
};
// Of all storages, in the order of their data; empty for streams and tar archives, which have no checksums.
std::vector<StorageChecksum> read_checksums(const ByteSource& source, const Limits& limits = {});

// What is not a tensor. Tuples and sets are lists, also where they are keys; torch.Size is a list, a device or dtype
// its name; tensors and opaque objects are null; keys stay numbers where they are. `key` picks a part: keys joined by
// dots, a list's items by their index; empty means everything. Throws kNotFound when there is no such part.
Value read_config(const ByteSource& source, std::string_view key = {}, const Limits& limits = {},
                  const Options& options = {});

}  // namespace weightstore::pytorch
