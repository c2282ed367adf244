#pragma once

// Writes boxes of tensors into files that exist already. Several processes write into one file at once, each the boxes
// that it has: no byte belongs to two of them.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "file/boxes/box.h"
#include "file/boxes/box_exchange.h"
#include "io/file_ops.h"
#include "weightstore/byte_producer.h"
#include "weightstore/progress.h"

namespace weightstore {

struct NewBox {
  std::string name;         // of the tensor, for progress and errors
  std::size_t file = 0;     // number in the list of files
  std::uint64_t begin = 0;  // where the tensor's bytes begin in the file
  TensorBox box;
  StridedArray values;  // has the size of the box; the caller keeps the memory alive
  // The bytes of the tensor that this rank writes together with others; needs BoxWriteOptions::exchange.
  std::optional<SharedRange> shared{};
};

struct BoxWriteOptions {
  bool direct = true;  // long runs of bytes bypass the page cache, where the file system can
  bool checksums = true;
  unsigned threads = 0;  // 0: one for each processor, 2 to 8
  Progress progress;
  BoxExchange* exchange = nullptr;
};

// Creates a file of `size` bytes and reserves its blocks, so that a full disk is found before anything is written.
// Throws Error(kIo), also when the name exists.
void create_box_file(const std::filesystem::path& path, std::uint64_t size, io::FileOps& ops);

// Writes first what this rank has alone, then what it writes together with others. If it throws, the members of the
// exchange have been told. Needs 4 MiB of memory a thread. The caller syncs the files.
//
// Returns, for each box, the remainder of its tensor's bytes with zeros in place of what the box does not have
// (base/crc32c_parts.h); empty without `checksums`. The remainder of a block that ranks write together is in the result
// of the rank that wrote it. Throws Error(kIo) with the file and the tensor, and Error(kInvalidArgument) before
// anything is written.
std::vector<std::uint32_t> write_boxes(std::span<const std::filesystem::path> files, std::span<const NewBox> boxes,
                                       const BoxWriteOptions& options, io::FileOps& ops);

}  // namespace weightstore
