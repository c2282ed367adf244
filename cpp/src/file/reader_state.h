#pragma once

// What an open Reader holds.

#include <cstdint>
#include <memory>
#include <vector>

#include "file/checksum_table.h"
#include "formats/pytorch/storage_checks.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"

namespace weightstore {

struct ShardSet;

// Immutable once opened, but for the marks of what was verified, which are thread-safe.
struct Reader::State {
  // What is known of a set whose files are open.
  static std::shared_ptr<State> of(ShardSet set, Format format, const ReadOptions& options);

  Format format = Format::kUnknown;
  ReadOptions options;
  TensorTable table;
  std::unique_ptr<const ChecksumTable> checksums;  // null unless options.verify asks for them
  std::vector<ChecksumEntry> checksum_entries;
  std::shared_ptr<const StorageChecks> storages;  // of a .pt file, in place of the two above

  const ByteSource& source_of(std::size_t tensor) const { return *table.sources()[table.source_of(tensor)]; }

  // Adds the place to an error that happened while working on a tensor.
  [[noreturn]] void rethrow(Error& error, std::size_t tensor) const {
    throw error.in_tensor(table.name(tensor)).in_file(source_of(tensor).name()).of_format(format);
  }

  std::uint32_t compute_crc(std::size_t tensor) const;

  // Of a tensor of a .pt file: where in the file its bytes, or the first of them, lie.
  std::uint64_t position_of(std::size_t tensor) const;

  // True while a tensor has a checksum that was not compared yet.
  bool needs_check(std::size_t tensor) const;

  // True when the tensor's own bytes, in order, are all that its checksum is about. Part of a storage has none of its
  // own.
  bool has_own_checksum(std::size_t tensor) const;
  // Of such a tensor: goes on with its checksum, which begins as 0, and compares it at the end. Throws Error(kCorrupt).
  std::uint32_t extend_crc(ConstBytes bytes, std::uint32_t crc) const;
  void compare_crc(std::size_t tensor, std::uint32_t crc) const;

  // Checks a tensor that was not checked yet, by `bytes` when the caller has them already.
  void verify(std::size_t tensor, const ConstBytes* bytes = nullptr) const;

  // Throws unless every tensor has a checksum. One without may be a tensor whose name was damaged.
  void require_checksums() const;

  ChecksumTable make_checksums() const;
};

}  // namespace weightstore
