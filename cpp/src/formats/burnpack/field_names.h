#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/cbor.h"
#include "weightstore/error.h"

namespace weightstore::burnpack {

// The names of the fields in one CBOR map: tells the known ones by number, and refuses any name that comes twice.
class FieldNames {
 public:
  static constexpr int kUnknown = -1;
  // Burn passes over fields it does not know. So do we, but nobody has this many in earnest.
  static constexpr std::size_t kMaxUnknown = 256;

  // `known` (32 names at most) must outlive this.
  explicit FieldNames(std::span<const std::string_view> known) : known_(known) {}

  // Reads a name: its number in `known`, or kUnknown.
  int read(CborCursor& cursor) {
    const std::uint64_t start = cursor.offset();
    // Fields mostly come in their order.
    if (expected_ < known_.size() && !has(static_cast<int>(expected_)) && cursor.try_name(known_[expected_])) {
      seen_ |= 1u << expected_;
      return static_cast<int>(expected_++);
    }
    const std::string_view name = cursor.read_name();
    for (std::size_t tried = 0; tried < known_.size(); ++tried, ++expected_) {
      if (expected_ >= known_.size()) expected_ = 0;
      if (known_[expected_] != name) continue;
      const auto field = static_cast<int>(expected_++);
      if (has(field)) fail_twice(name, start);
      seen_ |= 1u << field;
      return field;
    }
    if (unknown_.size() == kMaxUnknown) {
      throw Error(ErrorCode::kLimit, "more than " + std::to_string(kMaxUnknown) + " unknown fields in one map")
          .at_offset(start);
    }
    unknown_.push_back(name);
    return kUnknown;
  }

  bool has(int field) const { return (seen_ >> field & 1) != 0; }

  // To be called behind the last field.
  void require(int field, const CborCursor& cursor) const {
    if (has(field)) return;
    throw Error(ErrorCode::kCorrupt,
                "the field '" + std::string(known_[static_cast<std::size_t>(field)]) + "' is missing")
        .at_offset(cursor.offset());
  }

  // To be called behind the last field: unknown names are compared only now.
  void check_unknown(const CborCursor& cursor) {
    if (unknown_.size() < 2) return;
    std::sort(unknown_.begin(), unknown_.end());
    const auto twice = std::adjacent_find(unknown_.begin(), unknown_.end());
    if (twice != unknown_.end()) fail_twice(*twice, cursor.offset());
  }

 private:
  [[noreturn]] static void fail_twice(std::string_view name, std::uint64_t offset) {
    throw Error(ErrorCode::kCorrupt, "the field '" + std::string(name) + "' is given twice").at_offset(offset);
  }

  std::span<const std::string_view> known_;
  std::size_t expected_ = 0;
  std::uint32_t seen_ = 0;
  std::vector<std::string_view> unknown_;
};

}  // namespace weightstore::burnpack
