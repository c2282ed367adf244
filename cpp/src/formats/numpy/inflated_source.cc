#include "formats/numpy/inflated_source.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/inflate.h"
#include "codec/memory_budget.h"
#include "formats/numpy/atomic_lock.h"
#include "weightstore/error.h"

namespace weightstore::numpy {
namespace {

// Threads that read together take ranges of this size, so that each range begins at a place that is remembered.
constexpr std::uint64_t kBetweenBookmarks = 4u << 20;

void check_range(const ByteSource& source, std::uint64_t offset, std::uint64_t length) {
  if (offset <= source.size() && length <= source.size() - offset) return;
  throw Error(ErrorCode::kIo, "read of " + std::to_string(length) + " bytes beyond the end of an array of " +
                                  std::to_string(source.size()))
      .in_file(source.name())
      .at_offset(offset);
}

class InflatedSource final : public ByteSource {
 public:
  InflatedSource(std::shared_ptr<const ByteSource> file, const CompressedMember& member, std::uint64_t skipped)
      : file_(std::move(file)), member_(member), skipped_(skipped) {}

  std::uint64_t size() const override { return member_.size - skipped_; }
  std::string name() const override { return file_->name(); }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    check_range(*this, offset, out.size());
    if (out.empty()) return;
    const std::lock_guard lock(lock_);
    try {
      go_to(skipped_ + offset);
      advance(out.size(), [&](std::uint64_t count) {
        stream_->read(out.first(static_cast<std::size_t>(count)));
        out = out.subspan(static_cast<std::size_t>(count));
      });
      if (stream_->position() == member_.size) stream_->expect_end();
    } catch (...) {
      stream_.reset();  // it is of no more use
      throw;
    }
  }

 private:
  // A bookmark stands before byte `skipped_ + i * kBetweenBookmarks`.
  std::uint64_t place_of(std::size_t bookmark) const { return skipped_ + bookmark * kBetweenBookmarks; }

  void go_to(std::uint64_t position) const {
    if (!stream_) stream_.emplace(Deflated{*file_, member_.begin, member_.end});
    const auto before = static_cast<std::size_t>((position - skipped_) / kBetweenBookmarks);
    const std::size_t known = std::min<std::size_t>(before + 1, bookmarks_.size());
    const bool is_behind = stream_->position() > position;
    if (known > 0 && (is_behind || place_of(known - 1) > stream_->position())) {
      stream_->go_to(*bookmarks_[known - 1]);
    } else if (is_behind) {
      stream_.emplace(Deflated{*file_, member_.begin, member_.end});
    }
    advance(position - stream_->position(), [&](std::uint64_t count) { stream_->skip(count); });
  }

  // Calls step() for pieces of `count` bytes that do not pass the next bookmark.
  template <class Step>
  void advance(std::uint64_t count, Step step) const {
    for (;;) {
      const std::uint64_t next = place_of(bookmarks_.size());
      if (stream_->position() == next) {
        bookmarks_.push_back(stream_->bookmark());
        continue;
      }
      if (count == 0) return;
      const std::uint64_t piece = stream_->position() < next ? std::min(count, next - stream_->position()) : count;
      step(piece);
      count -= piece;
    }
  }

  const std::shared_ptr<const ByteSource> file_;
  const CompressedMember member_;
  const std::uint64_t skipped_;
  mutable AtomicLock lock_;
  mutable std::optional<InflateStream> stream_;
  mutable std::vector<std::shared_ptr<const InflateStream::Bookmark>> bookmarks_;
};

class KeptSource final : public ByteSource {
 public:
  KeptSource(std::shared_ptr<const ByteSource> content, std::uint64_t most)
      : content_(std::move(content)), most_(most) {}

  std::uint64_t size() const override { return content_->size(); }
  std::string name() const override { return content_->name(); }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    check_range(*this, offset, out.size());
    const ConstBytes bytes = ConstBytes(*kept()).subspan(static_cast<std::size_t>(offset), out.size());
    std::copy(bytes.begin(), bytes.end(), out.begin());
  }

  std::optional<SharedBytes> view(std::uint64_t offset, std::uint64_t length) const override {
    const auto bytes = kept();
    return SharedBytes{ConstBytes(*bytes).subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(length)),
                       bytes};
  }

 private:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;

  Bytes kept() const {
    const std::lock_guard lock(lock_);
    if (bytes_ != nullptr) return bytes_;
    if (size() > most_) {
      throw Error(ErrorCode::kLimit, "a compressed array of " + std::to_string(size()) +
                                         " bytes, whose elements have to be put in order; at most " +
                                         std::to_string(most_) +
                                         " are kept in memory. Raise the limit 'expanded_bytes'");
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(size()));
    content_->read_at(0, bytes);
    bytes_ = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
    return bytes_;
  }

  const std::shared_ptr<const ByteSource> content_;
  const std::uint64_t most_;
  mutable AtomicLock lock_;
  mutable Bytes bytes_;
};

// On the heap by std::make_shared, and in an array of sources that doubles.
template <class Source>
std::uint64_t bytes_of_source() {
  return MemoryBudget::heap_bytes(sizeof(Source) + 32) + 3 * sizeof(std::shared_ptr<ByteSource>);
}

}  // namespace

std::shared_ptr<const ByteSource> inflated_source(std::shared_ptr<const ByteSource> file,
                                                  const CompressedMember& member, std::uint64_t skipped) {
  return std::make_shared<InflatedSource>(std::move(file), member, skipped);
}

std::shared_ptr<const ByteSource> kept_source(std::shared_ptr<const ByteSource> content, std::uint64_t most) {
  return std::make_shared<KeptSource>(std::move(content), most);
}

std::uint64_t inflated_source_bytes() { return bytes_of_source<InflatedSource>(); }
std::uint64_t kept_source_bytes() { return bytes_of_source<KeptSource>(); }

}  // namespace weightstore::numpy
