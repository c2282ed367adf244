#pragma once

// Reads the directory of a ZIP archive. It refuses archives that other programs might read differently.

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "codec/memory_budget.h"
#include "weightstore/byte_source.h"

namespace weightstore {

struct ZipRecord {
  std::string_view name;
  std::uint64_t begin = 0;        // offset of the data in the file
  std::uint64_t stored_size = 0;  // size in the file
  std::uint64_t size = 0;         // size of the content, after inflating
  std::uint32_t crc = 0;          // of the content; some writers store 0 and mean "not computed"
  bool deflated = false;

  std::uint64_t end() const { return begin + stored_size; }
  bool has_crc() const { return crc != 0 || size == 0; }
};

// The records of an archive, in the order of their data. Takes about 60 bytes per record besides the bytes of the
// directory. Immutable.
//
// read() refuses with Error(kCorrupt):
//  - bytes before the first record, between records (except data descriptors) and after the end record, and comments;
//  - duplicate names, names that are not UTF-8, that have control characters or backslashes, or that are not plain
//    relative paths;
//  - local headers that contradict the directory, and flags that no writer sets;
//  - records that overlap; counts, sizes and offsets that contradict each other or point outside the file.
// It refuses with Error(kUnsupported) encryption, archives on several disks, and compression other than DEFLATE.
class ZipDirectory {
 public:
  struct Limits {
    std::uint64_t records = 1'000'000;
    std::uint64_t directory_bytes = 256u << 20;
  };

  // Charges `memory` for the directory as long as it lives, and for the results of content(). Null: makes a new budget
  // for the size of the source. Throws Error(kLimit) beyond `limits` or the budget.
  static ZipDirectory read(const ByteSource& source, const Limits& limits,
                           std::shared_ptr<MemoryBudget> memory = nullptr);

  std::size_t size() const { return records_.size(); }
  const ZipRecord& operator[](std::size_t i) const { return records_[i]; }
  // The number of the record with this name.
  std::optional<std::size_t> find(std::string_view name) const;

  // Reads the content of a record, inflates it if it is deflated, and compares its CRC if it has one. The result must
  // not outlive the budget. Throws Error(kCorrupt), and Error(kLimit) when the budget is too small.
  ChargedString content(const ByteSource& source, std::size_t record) const;

 private:
  explicit ZipDirectory(std::shared_ptr<MemoryBudget> memory)
      : memory_(std::move(memory)), bytes_(*memory_), records_(*memory_), cells_(*memory_) {}
  void build_lookup();

  std::shared_ptr<MemoryBudget> memory_;  // declared first, because the vectors use it until they are destroyed
  ChargedVector<std::byte> bytes_;        // the central directory; the names of records point into it
  ChargedVector<ZipRecord> records_;
  ChargedVector<std::uint32_t> cells_;  // open addressing; record numbers
  std::uint64_t seed_ = 0;
};

}  // namespace weightstore
