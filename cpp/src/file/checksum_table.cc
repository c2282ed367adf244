#include "file/checksum_table.h"

#include <charconv>

#include "base/name_order.h"
#include "codec/json.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

std::string hex8(std::uint32_t n) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(8, '0');
  for (std::size_t i = 8; i-- > 0; n >>= 4) text[i] = kDigits[n & 15];
  return text;
}

}  // namespace

ChecksumTable::ChecksumTable(std::size_t tensors) : entries_(std::make_unique<Entry[]>(tensors)) {}

void ChecksumTable::add(const ChecksumEntry& entry, const TensorTable& table) try {
  JsonCursor cursor(entry.text);
  std::string name_scratch;
  std::string scratch;
  std::string_view name;
  cursor.begin_object();
  while (cursor.next_key(name, name_scratch)) {
    const std::string_view digits = cursor.read_string(scratch);
    std::uint32_t crc = 0;
    const auto result = std::from_chars(digits.begin(), digits.end(), crc, 16);
    if (digits.size() != 8 || result.ec != std::errc() || result.ptr != digits.end()) {
      cursor.fail("expected eight hexadecimal digits, found '" + printable(digits) + "'");
    }
    const auto tensor = table.find(name);
    if (!tensor || (entry.source && table.source_of(*tensor) != *entry.source)) continue;
    Entry& known = entries_[*tensor];
    if (known.present) cursor.fail("duplicate checksum of tensor '" + printable(name) + "'");
    known.crc = crc;
    known.present = true;
    ++count_;
  }
  cursor.expect_end();
} catch (const Error& error) {
  throw Error(ErrorCode::kCorrupt, std::string("metadata entry '") + kChecksumKey + "': " + error.what());
}

std::optional<std::uint32_t> ChecksumTable::expected(std::size_t tensor) const {
  if (!entries_[tensor].present) return std::nullopt;
  return entries_[tensor].crc;
}

bool ChecksumTable::needs_check(std::size_t tensor) const {
  return entries_[tensor].present && !entries_[tensor].checked.load(std::memory_order_relaxed);
}

void ChecksumTable::check(std::size_t tensor, std::uint32_t found) const {
  Entry& entry = entries_[tensor];
  if (found != entry.crc) throw wrong_checksum(found, entry.crc);
  entry.checked.store(true, std::memory_order_relaxed);
}

Error wrong_checksum(std::uint32_t found, std::uint32_t expected) {
  return Error(ErrorCode::kCorrupt, "its bytes have the checksum " + hex8(found) + ", the file says " + hex8(expected) +
                                        "; the file was damaged, or changed by a tool that keeps metadata as it is");
}

std::string checksum_entry(std::span<const std::string_view> names, std::span<const std::uint32_t> crcs) {
  std::string json = "{";
  for (const std::uint32_t i : order_by_name(names.size(), [&](std::uint32_t k) { return names[k]; })) {
    if (json.size() > 1) json.push_back(',');
    append_json_string(json, names[i]);
    json += ":\"" + hex8(crcs[i]) + '"';
  }
  json.push_back('}');
  return json;
}

}  // namespace weightstore
