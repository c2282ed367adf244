#pragma once

// Several ranges of sources, one after the other, read as one source: a tensor that a checkpoint keeps in blocks.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weightstore/byte_source.h"

namespace weightstore {

struct SourceRange {
  std::shared_ptr<const ByteSource> source;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

class JoinedSource final : public ByteSource {
 public:
  // Every range lies inside its source, and the lengths fit into 64 bits together. The object keeps the sources open.
  // `name` is what name() returns. Errors of reading name the source of a range instead.
  JoinedSource(std::vector<SourceRange> ranges, std::string name);

  std::uint64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  std::string name() const override { return name_; }
  void read_at(std::uint64_t offset, MutableBytes out) const override;
  // Views exist only inside one range.
  std::optional<SharedBytes> view(std::uint64_t offset, std::uint64_t length) const override;
  std::optional<SharedMutableBytes> private_view(std::uint64_t offset, std::uint64_t length) const override;
  void populate(std::uint64_t offset, std::uint64_t length) const override;
  void discard(std::uint64_t offset, std::uint64_t length) const noexcept override;

  // Calls use(source, offset in it, bytes before this piece, bytes of this piece) for every piece of a range that lies
  // in [offset, offset + length), in order. The caller makes sure that these bytes exist.
  template <class Use>
  void for_each_piece(std::uint64_t offset, std::uint64_t length, const Use& use) const {
    std::uint64_t done = 0;
    for (std::size_t i = range_at(offset); done < length; ++i) {
      const std::uint64_t size = std::min(length - done, ends_[i] - (offset + done));
      if (size == 0) continue;
      use(*ranges_[i].source, offset_in(i, offset + done), done, size);
      done += size;
    }
  }

 private:
  // The number of the first range that ends behind `offset`.
  std::size_t range_at(std::uint64_t offset) const {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
  }
  // Where a byte of this source is in the source of range i, which holds it.
  std::uint64_t offset_in(std::size_t i, std::uint64_t offset) const {
    return ranges_[i].offset + (offset - (ends_[i] - ranges_[i].length));
  }
  // The number of the range that holds all these bytes, or the number of ranges when there is none.
  std::size_t range_around(std::uint64_t offset, std::uint64_t length) const;

  const std::vector<SourceRange> ranges_;
  const std::string name_;
  std::vector<std::uint64_t> ends_;  // of every range, in this source
};

}  // namespace weightstore
