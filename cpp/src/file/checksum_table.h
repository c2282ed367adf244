#pragma once

// The checksums a file carries about its tensors: one metadata entry of JSON text, name to eight hexadecimal digits.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/error.h"
#include "weightstore/tensor.h"

namespace weightstore {

// The text of one metadata entry, and the source whose tensors it speaks for: a shard's entry says nothing about the
// tensors of other shards. An entry of a whole set has no source.
struct ChecksumEntry {
  std::string text;
  std::optional<std::uint32_t> source;
};

// Built while a file is opened; from then on thread-safe. It remembers which tensors were found right, so that each is
// checked once.
class ChecksumTable {
 public:
  explicit ChecksumTable(std::size_t tensors);

  // Takes an entry. Names that its source does not have are passed over: a tool that dropped a tensor need not know of
  // us. Throws Error(kCorrupt) when it is not what we write.
  void add(const ChecksumEntry& entry, const TensorTable& table);

  std::size_t count() const { return count_; }
  std::optional<std::uint32_t> expected(std::size_t tensor) const;
  bool needs_check(std::size_t tensor) const;

  // Compares and remembers. Throws Error(kCorrupt) naming both values.
  void check(std::size_t tensor, std::uint32_t found) const;

 private:
  struct Entry {
    std::uint32_t crc = 0;
    bool present = false;
    std::atomic<bool> checked{false};
  };
  std::unique_ptr<Entry[]> entries_;
  std::size_t count_ = 0;
};

// kCorrupt, naming both values.
Error wrong_checksum(std::uint32_t found, std::uint32_t expected);

// The entry's text for tensors with these names and checksums, sorted by name.
std::string checksum_entry(std::span<const std::string_view> names, std::span<const std::uint32_t> crcs);

}  // namespace weightstore
