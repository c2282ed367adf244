#pragma once

// The text of a header that is read in parts, so that a header of 100 MB does not take 100 MB of memory.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "weightstore/byte_source.h"

namespace weightstore {

// A part of [offset, offset + size) of a source, which the caller has checked to be there. Reads every byte once: a
// file that changes meanwhile cannot change what was checked. The source outlives the window.
class HeaderWindow {
 public:
  HeaderWindow(const ByteSource& source, std::uint64_t offset, std::size_t size)
      : source_(source), offset_(offset), unread_(size) {
    grow(std::min(size, kUsualBytes));
    fill();
  }

  // What is in memory. Valid until advance().
  std::string_view text() const { return {bytes_.get(), size_}; }
  bool has_more() const { return unread_ > 0; }

  // Drops the first `used` bytes of text(), and reads as many from behind it as there is room for. If text() would be
  // hardly longer, makes room for twice as much.
  void advance(std::size_t used) {
    const std::size_t kept = size_ - used;
    if (kept > capacity_ / 2) {
      const auto old = std::move(bytes_);
      grow(kept + std::min(unread_, capacity_));
      std::memcpy(bytes_.get(), old.get() + used, kept);
    } else if (kept > 0) {
      std::memmove(bytes_.get(), bytes_.get() + used, kept);
    }
    size_ = kept;
    fill();
  }

 private:
  static constexpr std::size_t kUsualBytes = std::size_t{256} << 10;  // fits the cache of a core

  void grow(std::size_t capacity) {
    bytes_ = std::make_unique_for_overwrite<char[]>(capacity);
    capacity_ = capacity;
  }

  void fill() {
    const std::size_t more = std::min(unread_, capacity_ - size_);
    source_.read_at(offset_, {reinterpret_cast<std::byte*>(bytes_.get() + size_), more});
    offset_ += more;
    unread_ -= more;
    size_ += more;
  }

  const ByteSource& source_;
  std::uint64_t offset_;  // of the first byte that was not read
  std::size_t unread_;
  std::unique_ptr<char[]> bytes_;
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
};

}  // namespace weightstore
