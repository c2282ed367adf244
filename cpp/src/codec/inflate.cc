#include "codec/inflate.h"

#include <algorithm>
#include <vector>

#include "codec/inflater.h"

namespace weightstore {
namespace {

using deflate::BlockState;
using deflate::fail;
using deflate::Inflater;
using deflate::Input;
using deflate::kHistory;
using deflate::kLongestCopy;

constexpr std::size_t kStep = 32u << 10;  // what a stream decodes at a time
constexpr std::size_t kStreamInput = 32u << 10;
constexpr std::size_t kPrefixInput = 1u << 10;

}  // namespace

void inflate(ConstBytes compressed, MutableBytes out) {
  Inflater inflater(Input(compressed), out);
  inflater.run(SIZE_MAX);
  if (inflater.filled() != out.size()) fail("it is shorter than the archive says");
  if (inflater.has_more_input()) fail("bytes behind its end");
}

void inflate_prefix(const Deflated& compressed, MutableBytes out) {
  std::vector<std::byte> buffer(out.size() + kLongestCopy);
  Inflater inflater(Input(compressed, kPrefixInput), buffer);
  inflater.run(out.size());
  if (inflater.filled() < out.size()) fail("it is shorter than the archive says");
  std::copy_n(buffer.begin(), out.size(), out.begin());
}

struct InflateStream::Bookmark {
  BlockState block;
  std::uint64_t input_position;
  std::vector<std::byte> history;
  std::size_t taken;
  std::uint64_t position;
};

// The buffer has what copies may reach, and behind it what was decoded and not taken yet.
class InflateStream::Steps {
 public:
  explicit Steps(const Deflated& compressed)
      : buffer_(kHistory + kStep + kLongestCopy), inflater_(Input(compressed, kStreamInput), buffer_) {}

  std::uint64_t position() const { return position_; }

  // At least one and at most `most` bytes, which follow. Valid until the next call.
  ConstBytes next(std::uint64_t most) {
    if (taken_ == inflater_.filled()) decode(static_cast<std::size_t>(std::min<std::uint64_t>(most, kStep)));
    if (taken_ == inflater_.filled()) fail("it is shorter than the archive says");
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(most, inflater_.filled() - taken_));
    const ConstBytes bytes = ConstBytes(buffer_).subspan(taken_, count);
    taken_ += count;
    position_ += count;
    return bytes;
  }

  void expect_end() {
    if (taken_ == inflater_.filled()) decode(1);
    if (taken_ != inflater_.filled()) fail("it is longer than the archive says");
    if (inflater_.has_more_input()) fail("bytes behind its end");
  }

  std::shared_ptr<const Bookmark> bookmark() const {
    const std::size_t begin = taken_ > kHistory ? taken_ - kHistory : 0;
    const auto at = [&](std::size_t i) { return buffer_.begin() + static_cast<std::ptrdiff_t>(i); };
    return std::make_shared<Bookmark>(Bookmark{
        inflater_.block(), inflater_.input_position(), {at(begin), at(inflater_.filled())}, taken_ - begin, position_});
  }

  void go_to(const Bookmark& bookmark) {
    inflater_.restore(bookmark.block, bookmark.input_position, bookmark.history);
    taken_ = bookmark.taken;
    position_ = bookmark.position;
  }

 private:
  // Decodes `count` bytes or a few more; fewer at the end.
  void decode(std::size_t count) {
    inflater_.keep(std::min(inflater_.filled(), kHistory));
    taken_ = inflater_.filled();
    inflater_.run(taken_ + count);
  }

  std::vector<std::byte> buffer_;
  Inflater inflater_;
  std::size_t taken_ = 0;
  std::uint64_t position_ = 0;
};

InflateStream::InflateStream(const Deflated& compressed) : steps_(std::make_unique<Steps>(compressed)) {}
InflateStream::~InflateStream() = default;
InflateStream::InflateStream(InflateStream&&) noexcept = default;

std::uint64_t InflateStream::position() const { return steps_->position(); }

void InflateStream::read(MutableBytes out) {
  while (!out.empty()) {
    const ConstBytes bytes = steps_->next(out.size());
    std::copy(bytes.begin(), bytes.end(), out.begin());
    out = out.subspan(bytes.size());
  }
}

void InflateStream::skip(std::uint64_t count) {
  while (count > 0) count -= steps_->next(count).size();
}

void InflateStream::expect_end() { steps_->expect_end(); }

std::shared_ptr<const InflateStream::Bookmark> InflateStream::bookmark() const { return steps_->bookmark(); }

void InflateStream::go_to(const Bookmark& bookmark) { steps_->go_to(bookmark); }

}  // namespace weightstore
