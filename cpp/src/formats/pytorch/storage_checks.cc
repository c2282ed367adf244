#include "formats/pytorch/storage_checks.h"

#include <algorithm>

#include "codec/crc32.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

constexpr std::uint64_t kBlock = 1u << 20;

}  // namespace

StorageChecks::StorageChecks(const ByteSource& file, const Limits& limits)
    : storages_(pytorch::read_checksums(file, limits)),
      checked_(std::make_unique<std::atomic<bool>[]>(storages_.size())) {}

std::optional<std::size_t> StorageChecks::find(std::uint64_t position) const {
  const auto after = std::upper_bound(storages_.begin(), storages_.end(), position,
                                      [](std::uint64_t at, const auto& storage) { return at < storage.begin; });
  if (after == storages_.begin()) return std::nullopt;
  return static_cast<std::size_t>(after - storages_.begin() - 1);
}

void StorageChecks::check_at(const ByteSource& file, std::uint64_t position) const {
  if (const auto i = find(position)) check(file, *i);
}

bool StorageChecks::covers(std::uint64_t position) const {
  const auto i = find(position);
  return i && storages_[*i].crc;
}

bool StorageChecks::needs_check(std::uint64_t position) const {
  const auto i = find(position);
  return i && storages_[*i].crc && !checked_[*i].load(std::memory_order_relaxed);
}

bool StorageChecks::is_whole(std::uint64_t begin, std::uint64_t end) const {
  const auto i = find(begin);
  return i && storages_[*i].begin == begin && storages_[*i].end == end;
}

void StorageChecks::compare_at(std::uint64_t position, std::uint32_t crc) const {
  if (const auto i = find(position)) compare(*i, crc);
}

void StorageChecks::check(const ByteSource& file, std::size_t i) const {
  const pytorch::StorageChecksum& storage = storages_[i];
  if (!storage.crc || checked_[i].load(std::memory_order_relaxed)) return;
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(storage.end - storage.begin, kBlock)));
  std::uint32_t crc = 0;
  for (std::uint64_t at = storage.begin; at < storage.end; at += block.size()) {
    block.resize(static_cast<std::size_t>(std::min(storage.end - at, kBlock)));
    file.read_at(at, block);
    crc = crc32(block, crc);
  }
  compare(i, crc);
}

void StorageChecks::compare(std::size_t i, std::uint32_t crc) const {
  const pytorch::StorageChecksum& storage = storages_[i];
  if (crc != *storage.crc) {
    throw Error(ErrorCode::kCorrupt, "the bytes of storage '" + printable(storage.name) + "' have the CRC " +
                                         std::to_string(crc) + ", the archive says " + std::to_string(*storage.crc) +
                                         "; the file was damaged")
        .at_offset(storage.begin);
  }
  checked_[i].store(true, std::memory_order_relaxed);
}

void StorageChecks::confirm(std::size_t i, const pytorch::StorageChecksum& found) const {
  if (i >= storages_.size() || storages_[i].begin != found.begin || storages_[i].crc != found.crc) {
    throw Error(ErrorCode::kCorrupt, "storage '" + printable(found.name) + "' is another than when the file was opened")
        .at_offset(found.begin);
  }
  checked_[i].store(true, std::memory_order_relaxed);
}

void StorageChecks::require(std::uint64_t position) const {
  const auto i = find(position);
  if (i && storages_[*i].crc) return;
  const std::string what =
      i ? "storage '" + printable(storages_[*i].name) + "' has no checksum" : "the file carries no checksums";
  throw Error(ErrorCode::kUnsupported, what + " to verify; open it without full verification")
      .of_format(Format::kPytorch);
}

}  // namespace weightstore
