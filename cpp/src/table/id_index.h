#pragma once

// The index of a stripe, from id to row: a hash table with open addressing and linear probing, 16 bytes an entry.

#include <cstdint>
#include <optional>
#include <utility>

#include "io/huge_buffer.h"
#include "weightstore/byte_source.h"

namespace weightstore::table {

// Thread-compatible: the lock of the stripe guards it.
//
// The home of an id is the cell where the search for it begins. A batch first prefetches the homes of its ids and then
// looks the ids up, so that the entries are in the cache. Homes are valid until the index grows.
class IdIndex {
 public:
  struct Entry {
    std::int64_t id;
    std::uint32_t row_plus_one;  // 0: the cell is free, so that zeroed memory is an empty index
    std::uint32_t epoch;         // of the last change of the row

    std::uint32_t row() const { return row_plus_one - 1; }
  };
  static_assert(sizeof(Entry) == 16);

  // The secret keeps the author of a checkpoint from choosing ids that collide. No visible order depends on it. `fresh`
  // touches the memory of an index that grows, and outlives the index.
  IdIndex(std::uint64_t secret, io::FreshPages& fresh) : fresh_(&fresh), secret_(secret | 1) {}

  std::uint64_t size() const { return size_; }

  // Makes room for this many ids in all. They are about to be inserted, so the memory is touched ahead.
  void reserve(std::uint64_t ids);
  // A copy of this index with room for this many ids in all, of which only the used pages take memory; nullopt if this
  // index has the room already. Throws std::bad_alloc.
  std::optional<IdIndex> with_room(std::uint64_t ids) const;

  // Only when has_entries() is true.
  std::uint64_t home(std::int64_t id) const {
    std::uint64_t hash = static_cast<std::uint64_t>(id) * secret_;
    hash = (hash ^ (hash >> 32)) * 0x9E3779B97F4A7C15u;
    return (hash ^ (hash >> 32)) & mask_;
  }
  void prefetch(std::uint64_t home) const { __builtin_prefetch(entries_ + home); }

  // Null for an unknown id.
  Entry* find(std::int64_t id, std::uint64_t home) const {
    Entry* entry = entry_for(id, home);
    return entry->row_plus_one != 0 ? entry : nullptr;
  }
  Entry* find(std::int64_t id) const { return entries_ != nullptr ? find(id, home(id)) : nullptr; }

  // The entry of the id, or the free cell where it belongs, which take() fills.
  Entry* entry_for(std::int64_t id, std::uint64_t home) const {
    std::uint64_t i = home;
    while (entries_[i].row_plus_one != 0 && entries_[i].id != id) i = (i + 1) & mask_;
    return entries_ + i;
  }
  // There must be room.
  void take(Entry* entry, std::int64_t id, std::uint32_t row) {
    entry->id = id;
    entry->row_plus_one = row + 1;
    ++size_;
  }

  void erase(Entry* entry);
  // Calls visit(entry) for every id, in no particular order.
  template <class Visit>
  void for_each(Visit visit) const {
    std::uint64_t left = size_;
    for (std::uint64_t i = 0; left > 0; ++i) {
      if (entries_[i].row_plus_one == 0) continue;
      visit(entries_[i]);
      --left;
    }
  }
  void clear();

  bool has_entries() const { return entries_ != nullptr; }

 private:
  void split();

  io::FreshPages* fresh_;
  SharedMutableBytes memory_;
  Entry* entries_ = nullptr;
  std::uint64_t mask_ = 0;
  std::uint64_t room_ = 0;  // how many ids fit before the index grows
  std::uint64_t size_ = 0;
  std::uint64_t secret_;
};

}  // namespace weightstore::table
