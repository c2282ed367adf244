#include "table/id_index.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weightstore::table {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLeastCapacity = kPage / sizeof(IdIndex::Entry);

// Reserves more addresses than needed, so that an index can usually grow in place.
std::uint64_t reserved_for(std::uint64_t bytes) {
  constexpr std::uint64_t kStep = 16;
  std::uint64_t reserved = kLeastCapacity * sizeof(IdIndex::Entry);
  while (reserved < bytes) reserved *= kStep;
  return reserved;
}

// When more than two thirds are used, probe sequences get long.
constexpr std::uint64_t room_in(std::uint64_t capacity) { return capacity / 3 * 2; }

std::uint64_t capacity_for(std::uint64_t ids) {
  const std::uint64_t capacity = std::max(kLeastCapacity, std::bit_ceil(ids));
  return room_in(capacity) < ids ? capacity * 2 : capacity;
}

}  // namespace

void IdIndex::reserve(std::uint64_t ids) {
  if (ids <= room_) return;
  const std::uint64_t capacity = capacity_for(ids);
  const std::uint64_t wanted = capacity * sizeof(Entry);
  const std::uint64_t used = size_ > 0 ? (mask_ + 1) * sizeof(Entry) : 0;
  const bool moves = wanted > memory_.bytes.size();
  SharedMutableBytes memory = moves ? io::allocate_bulk(reserved_for(wanted)) : memory_;
  if (used > 0) {
    // The ids of a full index spread over all pages at once. Without touching, each page would fault twice: when it is
    // first read, and when it is first written.
    fresh_->touch(memory.bytes.first(wanted).subspan(moves ? 0 : used));
    if (moves) std::memcpy(memory.bytes.data(), entries_, used);
  }

  memory_ = std::move(memory);
  entries_ = reinterpret_cast<Entry*>(memory_.bytes.data());
  room_ = room_in(capacity);
  if (used > 0) {
    while (mask_ + 1 < capacity) split();
  }
  mask_ = capacity - 1;
}

std::optional<IdIndex> IdIndex::with_room(std::uint64_t ids) const {
  if (ids <= room_) return std::nullopt;
  const std::uint64_t capacity = capacity_for(ids);
  const std::uint64_t wanted = capacity * sizeof(Entry);
  IdIndex wider(secret_, *fresh_);
  wider.memory_ = io::allocate_bulk(reserved_for(wanted));
  // With at least one id a page, all pages are used at once, as in reserve().
  if (size_ >= wanted / kPage) fresh_->touch(wider.memory_.bytes.first(wanted));
  wider.entries_ = reinterpret_cast<Entry*>(wider.memory_.bytes.data());
  wider.mask_ = capacity - 1;
  wider.room_ = room_in(capacity);
  wider.size_ = size_;
  for_each([&](const Entry& entry) { *wider.entry_for(entry.id, wider.home(entry.id)) = entry; });
  return wider;
}

// Doubles the number of cells. The home of an id stays or moves up by the old capacity. The loop takes entries out and
// inserts them again one by one, starting after a free cell and going around once. In this order every entry between an
// entry and its home has been inserted again before the entry itself. An entry that wraps around the new end goes to
// cells that the loop has not reached yet.
void IdIndex::split() {
  const std::uint64_t old_mask = mask_;
  mask_ = 2 * mask_ + 1;
  std::uint64_t free_cell = 0;
  while (entries_[free_cell].row_plus_one != 0) ++free_cell;
  for (std::uint64_t step = 1; step <= old_mask; ++step) {
    Entry& cell = entries_[(free_cell + step) & old_mask];
    if (cell.row_plus_one == 0) continue;
    const Entry entry = cell;
    cell.row_plus_one = 0;
    *entry_for(entry.id, home(entry.id)) = entry;
  }
}

void IdIndex::erase(Entry* entry) {
  std::uint64_t hole = static_cast<std::uint64_t>(entry - entries_);
  for (std::uint64_t i = (hole + 1) & mask_; entries_[i].row_plus_one != 0; i = (i + 1) & mask_) {
    // An entry may move to the hole unless its home comes after the hole.
    if (((i - home(entries_[i].id)) & mask_) < ((i - hole) & mask_)) continue;
    entries_[hole] = entries_[i];
    hole = i;
  }
  entries_[hole].row_plus_one = 0;
  --size_;
}

void IdIndex::clear() {
  memory_ = {};
  entries_ = nullptr;
  mask_ = room_ = size_ = 0;
}

}  // namespace weightstore::table
