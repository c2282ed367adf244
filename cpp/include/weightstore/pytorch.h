#pragma once

// Reads files of torch.save(): their tensors as a table, and everything else as plain data. There is no writer. A plain
// pickle with a dict at its root, as pickle.dump() writes it, is read like the pickle in such a file.
//
// A pickle is a program. These functions treat it as data: they import nothing and call nothing, whatever the file asks
// for. Each function uses at most 24 bytes of memory per byte of the file, plus Limits::pytorch_memory_bytes, and
// throws Error(kLimit) for a file that needs more. docs/formats.md says what is read, docs/security.md what is refused.

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
  Opaque opaque = Opaque::kSkip;
};

// Finds all tensors and arrays of numpy. The name of a tensor is its path in the pickled object: the keys joined by
// dots. TensorTable::left_out() lists what was not read. Reads ZIP archives (torch 1.6 and later), streams (torch
// 0.1.10 to 1.5), tar archives (older releases) and plain pickles.
//
// A contiguous tensor in the byte order of this machine is a range of `source`. Every other tensor has a source of its
// own, which gathers the elements while they are read. Throws Error(kCorrupt, kLimit or kUnsupported); the error names
// the tensor if it is about one.
TensorTable read_table(std::shared_ptr<const ByteSource> source, const Limits& limits = {},
                       const Options& options = {});

// The CRC-32 of one storage, as the ZIP archive records it.
struct StorageChecksum {
  std::string name;         // of the record in the archive
  std::uint64_t begin = 0;  // the record's bytes are [begin, end) of the file
  std::uint64_t end = 0;
  std::optional<std::uint32_t> crc;  // nullopt when the archive records none
};
// The checksums of all storages, in the order of their data. Empty for the other kinds of files, which have
// no checksums.
std::vector<StorageChecksum> read_checksums(const ByteSource& source, const Limits& limits = {});

// The pickled object as plain data:
// - tuples, sets, deques and torch.Size become lists, also where they are keys; a complex number becomes a list of two
//   numbers, a slice or range a list of three;
// - a Namespace becomes the map of its attributes; a defaultdict, or any other class that is a dict, becomes a map;
// - a device, a type and a path become text, a date or time too, in ISO 8601; a timedelta becomes its seconds;
// - a number of numpy becomes a number;
// - tensors, arrays and objects of unknown classes become null;
// - all other values stay as they are, and so do keys that are numbers.
// `key` selects a part of the object: keys and indices of list items, joined by dots. An empty `key` selects
// everything. Throws Error(kNotFound) when there is no such part, and otherwise as read_table() does.
Value read_config(const ByteSource& source, std::string_view key = {}, const Limits& limits = {},
                  const Options& options = {});

}  // namespace weightstore::pytorch
