#pragma once

// User metadata: a map from text to text.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weightstore {

// Takes a few words per entry and one arena for all text, so that a hostile header cannot make the map much larger than
// the header itself. The entries are in the order of add() until sort() is called.
class TextMap {
 public:
  // Appends an entry. The caller makes sure that keys are unique; duplicate() helps. Throws Error(kLimit) beyond 4 GiB
  // of text.
  void add(std::string_view key, std::string_view value);
  // Makes room for this many entries and bytes of text, so that add() does not grow the memory by doubling.
  void reserve(std::size_t entries, std::size_t text_bytes) {
    entries_.reserve(entries);
    text_.reserve(text_bytes);
  }

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  std::string_view key(std::size_t i) const { return key(entries_[i]); }
  std::string_view value(std::size_t i) const {
    const Entry& entry = entries_[i];
    return std::string_view(text_).substr(entry.offset + entry.key_length, entry.value_length);
  }
  std::optional<std::string_view> find(std::string_view key) const;

  // Sorts the entries by the bytes of their keys.
  void sort();
  // After sort(): the index of a key that equals the key before it, or size() when all keys differ.
  std::size_t duplicate() const;

 private:
  struct Entry {
    std::uint32_t offset;  // of the key; the value follows it
    std::uint32_t key_length;
    std::uint32_t value_length;
  };
  std::string_view key(const Entry& entry) const {
    return std::string_view(text_).substr(entry.offset, entry.key_length);
  }

  std::string text_;
  std::vector<Entry> entries_;
};

}  // namespace weightstore
