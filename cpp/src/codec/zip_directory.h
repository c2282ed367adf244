#pragma once

// The directory of a ZIP archive, read so strictly that no other reader can see other records in it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "codec/memory_budget.h"
#include "weightstore/byte_source.h"

namespace weightstore {

struct ZipRecord {
  std::string_view name;
  std::uint64_t begin = 0;        // of the data, in the file
  std::uint64_t stored_size = 0;  // bytes in the file
  std::uint64_t size = 0;         // bytes of the content
  std::uint32_t crc = 0;          // as written; some writers leave 0 for "not computed"
  bool deflated = false;

  std::uint64_t end() const { return begin + stored_size; }
  bool has_crc() const { return crc != 0 || size == 0; }
};

// Immutable. Records are in the order of their data. About 50 bytes a record beside the directory's own bytes.
//
// Refused with kCorrupt: anything before the first record, between records (but data descriptors), or behind the end
// record, comments among them; names that come twice, are not UTF-8, have control characters or backslashes, or could
// leave the archive's own tree; local headers that contradict the directory; records that overlap; counts, sizes and
// offsets that disagree or point outside of the file. Refused with kUnsupported: encryption, patches, several disks,
// methods other than stored and deflated.
class ZipDirectory {
 public:
  struct Limits {
    std::uint64_t records = 1'000'000;
    std::uint64_t directory_bytes = 256u << 20;
  };

  // `memory` is charged for the directory as long as it lives, and for the contents that are taken from it. None: a
  // budget of its own for the size of the source.
  static ZipDirectory read(const ByteSource& source, const Limits& limits,
                           std::shared_ptr<MemoryBudget> memory = nullptr);

  std::size_t size() const { return records_.size(); }
  const ZipRecord& operator[](std::size_t i) const { return records_[i]; }
  // The number of the record, or nullopt.
  std::optional<std::size_t> find(std::string_view name) const;

  // The content of a record, inflated when need be, with its CRC checked (when it has one). Not to outlive the budget.
  // Throws kLimit when the budget does not cover it.
  ChargedString content(const ByteSource& source, std::size_t record) const;

 private:
  explicit ZipDirectory(std::shared_ptr<MemoryBudget> memory)
      : memory_(std::move(memory)), bytes_(*memory_), records_(*memory_), slots_(*memory_) {}
  void build_lookup();

  std::shared_ptr<MemoryBudget> memory_;  // outlives what follows
  ChargedVector<std::byte> bytes_;        // the central directory; names point into it
  ChargedVector<ZipRecord> records_;
  ChargedVector<std::uint32_t> slots_;  // open addressing; record numbers
  std::uint64_t seed_ = 0;
};

}  // namespace weightstore
