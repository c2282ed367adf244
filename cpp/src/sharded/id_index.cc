#include "sharded/id_index.h"

#include <algorithm>
#include <bit>

namespace weightstore::sharded {
namespace {

constexpr std::uint64_t kLeastCapacity = 256;  // a page of memory

// Above two thirds probes get long.
constexpr std::uint64_t room_in(std::uint64_t capacity) { return capacity / 3 * 2; }

}  // namespace

void IdIndex::reserve(std::uint64_t ids) {
  if (ids <= room_) return;
  std::uint64_t capacity = std::max(kLeastCapacity, std::bit_ceil(ids));
  if (room_in(capacity) < ids) capacity *= 2;

  SharedMutableBytes memory = io::allocate_bulk(capacity * sizeof(Entry));
  // Ids of a full index come back to all of it at once; what is reserved ahead may never be used.
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  if (size_ > 0 && memory.bytes.size() >= kHugePage) fresh_->touch(memory.bytes);
  const Entry* old = entries_;
  const std::uint64_t old_capacity = old != nullptr ? mask_ + 1 : 0;
  entries_ = reinterpret_cast<Entry*>(memory.bytes.data());
  mask_ = capacity - 1;
  shift_ = static_cast<unsigned>(64 - std::countr_zero(capacity));
  room_ = room_in(capacity);
  constexpr std::uint64_t kAhead = 16;
  for (std::uint64_t i = 0; i < old_capacity; ++i) {
    if (i + kAhead < old_capacity) prefetch(home(old[i + kAhead].id));
    if (old[i].row_plus_one != 0) *entry_for(old[i].id, home(old[i].id)) = old[i];
  }
  memory_ = std::move(memory);
}

void IdIndex::erase(Entry* entry) {
  std::uint64_t hole = static_cast<std::uint64_t>(entry - entries_);
  for (std::uint64_t i = (hole + 1) & mask_; entries_[i].row_plus_one != 0; i = (i + 1) & mask_) {
    // An entry may move back to the hole unless its home lies behind the hole.
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

}  // namespace weightstore::sharded
