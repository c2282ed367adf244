#include "file/checksum_table.h"

#include <algorithm>
#include <charconv>

#include "base/name_order.h"
#include "codec/json.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

constexpr std::uint64_t kChunkBytes = 1u << 20;  // what is read at a time without a mapping

const ByteSource& source_of(const TensorTable& table, std::size_t tensor) {
  return *table.sources()[table.source_of(tensor)];
}

std::uint32_t compute(const TensorTable& table, std::size_t tensor) {
  const ByteSource& source = source_of(table, tensor);
  const std::uint64_t begin = table.begin(tensor);
  const std::uint64_t size = table.nbytes(tensor);
  if (const auto view = source.view(begin, size)) return crc32c(view->bytes);
  std::vector<std::byte> chunk(static_cast<std::size_t>(std::min(size, kChunkBytes)));
  std::uint32_t crc = 0;
  for (std::uint64_t done = 0; done < size; done += chunk.size()) {
    chunk.resize(static_cast<std::size_t>(std::min(size - done, kChunkBytes)));
    source.read_at(begin + done, chunk);
    crc = crc32c(chunk, crc);
  }
  return crc;
}

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
  }
  cursor.expect_end();
  is_recorded_ = true;
} catch (const Error& error) {
  throw Error(ErrorCode::kCorrupt, std::string("metadata entry '") + kChecksumKey + "': " + error.what());
}

std::optional<std::uint32_t> ChecksumTable::expected(std::size_t tensor) const {
  if (!entries_[tensor].present) return std::nullopt;
  return entries_[tensor].crc;
}

void ChecksumTable::accept(std::size_t tensor) const {
  entries_[tensor].checked.store(true, std::memory_order_relaxed);
}

bool ChecksumTable::covers(const TensorTable&, std::size_t tensor) const { return entries_[tensor].present; }

bool ChecksumTable::needs_check(const TensorTable&, std::size_t tensor) const {
  return entries_[tensor].present && !entries_[tensor].checked.load(std::memory_order_relaxed);
}

void ChecksumTable::check(const TensorTable& table, std::size_t tensor, const ConstBytes* bytes) const {
  if (!needs_check(table, tensor)) return;
  compare(table, tensor, bytes != nullptr ? crc32c(*bytes) : compute(table, tensor));
}

bool ChecksumTable::is_whole_section(const TensorTable&, std::size_t) const { return true; }

std::uint32_t ChecksumTable::extend(ConstBytes bytes, std::uint32_t crc) const { return crc32c(bytes, crc); }

void ChecksumTable::compare(const TensorTable&, std::size_t tensor, std::uint32_t crc) const {
  if (crc != entries_[tensor].crc) throw wrong_checksum(crc, entries_[tensor].crc);
  accept(tensor);
}

void ChecksumTable::require_all(const TensorTable& table) const {
  if (!is_recorded_) {
    throw Error(
        ErrorCode::kUnsupported,
        "the file carries no checksums to verify; write it with checksums, or open it without full verification");
  }
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (entries_[i].present) continue;
    throw Error(ErrorCode::kCorrupt,
                "the file has checksums, but none for it; its name was damaged, or it was added later")
        .in_tensor(table.name(i))
        .in_file(source_of(table, i).name());
  }
}

std::vector<Checksums::Section> ChecksumTable::sections(const TensorTable& table) const {
  std::vector<Section> sections;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (entries_[i].present) sections.push_back({i, table.nbytes(i), table.name(i)});
  }
  return sections;
}

void ChecksumTable::check_section(const TensorTable& table, std::size_t tensor) const try {
  compare(table, tensor, compute(table, tensor));
} catch (Error& error) {
  throw error.in_tensor(table.name(tensor)).in_file(source_of(table, tensor).name());
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
