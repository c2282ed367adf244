#pragma once

// The state that the copies of a Reader share.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "file/checksum_table.h"
#include "formats/format_spec.h"
#include "io/file_ops.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"

namespace weightstore {

struct ShardSet;

// Does not change after the file was opened, except for the marks of compared checksums, which are thread-safe.
struct Reader::State {
  // The state of a Reader of one file.
  static std::shared_ptr<State> of(OpenedFile file, Format format, const ReadOptions& options);
  // The state of a Reader of a set of shards.
  static std::shared_ptr<State> of(ShardSet set, Format format, const ReadOptions& options);

  Format format = Format::kUnknown;
  ReadOptions options;
  io::FileOps* ops = &io::current_file_ops();  // the file system of the thread that opened the file
  TensorTable table;
  bool is_set = false;  // true: the sources are the files of a set; false: source 0 is the file
  std::string name;     // what file_name() returns; empty: the name of the only file
  ExpansionLimit expansion;
  std::shared_ptr<const Checksums> checksums;  // null with Verify::kOff
  // Where the file has its checksums, which are parsed when they are needed: entries of the metadata, or checksums that
  // the format itself defines (null if it defines none).
  std::vector<ChecksumEntry> checksum_entries;
  std::function<std::shared_ptr<const Checksums>()> own_checksums;

  const ByteSource& source_of(std::size_t tensor) const { return *table.sources()[table.source_of(tensor)]; }

  // Reader::file_name().
  std::string file_name() const;

  // Throws `error` with the file and the format and, for an error about a tensor, its name.
  [[noreturn]] void rethrow(Error& error, std::size_t tensor) const {
    throw error.in_tensor(table.name(tensor)).in_file(source_of(tensor).name()).of_format(format);
  }
  [[noreturn]] void rethrow(Error& error) const;

  // Compares the checksum of a tensor, unless it was compared before or the file was opened with Verify::kOff. `bytes`
  // as in Checksums::check().
  void verify(std::size_t tensor, const ConstBytes* bytes = nullptr) const {
    if (checksums) checksums->check(table, tensor, bytes);
  }

  // The checksums in the metadata. The table has none when there is no entry.
  ChecksumTable recorded_checksums() const;
  // `checksums`. If the file was opened with Verify::kOff, the checksums that it records.
  std::shared_ptr<const Checksums> known_checksums() const;
};

}  // namespace weightstore
