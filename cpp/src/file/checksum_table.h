#pragma once

// The checksums that weightstore stores in the metadata of a file: an entry of JSON text that maps the name of each
// tensor to eight hexadecimal digits.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checksums.h"
#include "weightstore/error.h"
#include "weightstore/tensor.h"

namespace weightstore {

// The text of a metadata entry. The entry of a shard is only about the tensors of that shard: `source` is its source.
// The entry of a file or of the index of a set has no `source`, and is about all tensors.
struct ChecksumEntry {
  std::string text;
  std::optional<std::uint32_t> source;
};

// Checksums whose sections are tensors. The reader calls add() before it shares the table with other threads.
// Afterwards only the marks of compared tensors change, and the table is thread-safe.
class ChecksumTable final : public Checksums {
 public:
  explicit ChecksumTable(std::size_t tensors);

  // Adds the checksums of an entry. Ignores names of tensors that do not exist: another tool may have removed a tensor
  // and kept the metadata. Throws Error(kCorrupt) for an entry that weightstore does not write.
  void add(const ChecksumEntry& entry, const TensorTable& table);

  // The checksum of a tensor; nullopt when there is none.
  std::optional<std::uint32_t> expected(std::size_t tensor) const;
  // Marks a tensor as compared and right, when the caller knows that.
  void accept(std::size_t tensor) const;

  bool covers(const TensorTable& table, std::size_t tensor) const override;
  bool needs_check(const TensorTable& table, std::size_t tensor) const override;
  void check(const TensorTable& table, std::size_t tensor, const ConstBytes* bytes) const override;
  bool is_whole_section(const TensorTable& table, std::size_t tensor) const override;
  std::uint32_t extend(ConstBytes bytes, std::uint32_t crc) const override;
  void compare(const TensorTable& table, std::size_t tensor, std::uint32_t crc) const override;
  void require_all(const TensorTable& table) const override;
  std::vector<Section> sections(const TensorTable& table) const override;
  void check_section(const TensorTable& table, std::size_t tensor) const override;

 private:
  struct Entry {
    std::uint32_t crc = 0;
    bool present = false;
    std::atomic<bool> checked{false};
  };
  std::unique_ptr<Entry[]> entries_;
  bool is_recorded_ = false;  // the file has an entry, even if the entry is empty
};

// An Error(kCorrupt) with both checksums.
Error wrong_checksum(std::uint32_t found, std::uint32_t expected);

// The text of an entry for tensors with these names and checksums. The entry is sorted by name.
std::string checksum_entry(std::span<const std::string_view> names, std::span<const std::uint32_t> crcs);

}  // namespace weightstore
