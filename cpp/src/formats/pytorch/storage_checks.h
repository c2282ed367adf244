#pragma once

// The checksums that the ZIP archive of a .pt file has for its storages.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "weightstore/pytorch.h"

namespace weightstore {

// Built while a file is opened; from then on thread-safe. It remembers which storages were found right, so that each is
// checked once, however many tensors share it.
class StorageChecks {
 public:
  StorageChecks(const ByteSource& file, const Limits& limits);

  std::size_t size() const { return storages_.size(); }
  const pytorch::StorageChecksum& operator[](std::size_t i) const { return storages_[i]; }

  // Checks the storage that `position` of the file belongs to, unless it was checked before or has no checksum. Throws
  // Error(kCorrupt) naming both values.
  void check_at(const ByteSource& file, std::uint64_t position) const;
  // True when there is something to check.
  bool covers(std::uint64_t position) const;
  // True while what is to be checked was not.
  bool needs_check(std::uint64_t position) const;
  // True when [begin, end) are all bytes of one storage.
  bool is_whole(std::uint64_t begin, std::uint64_t end) const;
  // As check_at(), by the checksum that somebody computed while reading all of the storage.
  void compare_at(std::uint64_t position, std::uint32_t crc) const;
  // The same as check_at() by number.
  void check(const ByteSource& file, std::size_t i) const;
  // The storage was just found to have the checksum of `found`: that is the one it has to have, or Error(kCorrupt).
  void confirm(std::size_t i, const pytorch::StorageChecksum& found) const;

  // Throws Error(kUnsupported) unless the storage that `position` belongs to has a checksum.
  void require(std::uint64_t position) const;

 private:
  void compare(std::size_t i, std::uint32_t crc) const;
  // The storage that the position belongs to.
  std::optional<std::size_t> find(std::uint64_t position) const;

  std::vector<pytorch::StorageChecksum> storages_;
  std::unique_ptr<std::atomic<bool>[]> checked_;
};

}  // namespace weightstore
