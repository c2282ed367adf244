#include "formats/pytorch/member_reader.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/corrupt.h"
#include "base/little_endian.h"
#include "codec/pickle_ops.h"
#include "formats/pytorch/container.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

constexpr std::uint64_t kMaxPickle = 1u << 20;
// Entries between the data of large storages are read a page at a time; what lies together, in larger and larger
// pieces.
constexpr std::uint64_t kFirstRead = 4u << 10;
constexpr std::uint64_t kLargestRead = 64u << 10;

}  // namespace

ConstBytes MemberReader::ahead() const {
  const std::uint64_t window_end = window_begin_ + window_.size();
  if (position_ >= window_end) return {};
  return ConstBytes(window_).subspan(static_cast<std::size_t>(position_ - window_begin_));
}

void MemberReader::fill(std::uint64_t bytes) {
  const ConstBytes had = ahead();
  if (had.size() >= bytes || had.size() == end_ - position_) return;
  const bool near = position_ <= window_begin_ + window_.size();
  read_size_ = near && read_size_ > 0 ? std::min(2 * read_size_, kLargestRead) : kFirstRead;
  const std::uint64_t size = std::min(end_ - position_, std::max(bytes, had.size() + read_size_));
  const std::size_t kept = had.size();
  std::copy(had.begin(), had.end(), window_.begin());
  window_.resize(static_cast<std::size_t>(size));
  window_begin_ = position_;
  source_.read_at(position_ + kept, MutableBytes(window_).subspan(kept));
}

const PickleTree& MemberReader::pickle() {
  const std::uint64_t most = std::min(end_ - position_, kMaxPickle);
  for (fill(1);; fill(2 * ahead().size())) {
    const ConstBytes bytes = ahead();
    std::optional<std::size_t> length;
    try {
      length = pickle_length(bytes);
    } catch (Error& error) {
      error.shift_offset(position_);
      throw;
    }
    if (length && *length <= most) {
      const std::uint64_t offset = position_;
      position_ += *length;
      return parser_.parse(bytes.first(*length), offset);
    }
    if (bytes.size() < most) continue;
    if (most == kMaxPickle) {
      throw Error(ErrorCode::kLimit, "a pickle of more than " + std::to_string(kMaxPickle) + " bytes")
          .at_offset(position_);
    }
    throw corrupt("the file ends inside a pickle").at_offset(position_);
  }
}

std::uint64_t MemberReader::count() {
  const PickleTree& tree = pickle();
  const std::uint64_t count = natural(tree, tree.root(), "a count");
  // Each takes some bytes: a count beyond that is refused before anything is made of it.
  if (count > end_ - position_) throw corrupt("a count of " + std::to_string(count)).at_offset(position_);
  return count;
}

std::uint64_t MemberReader::number(std::size_t bytes) {
  if (end_ - position_ < bytes) throw corrupt("a member of the archive ends early").at_offset(position_);
  fill(bytes);
  std::array<std::byte, 8> digits{};
  std::copy_n(ahead().data(), bytes, digits.data());
  position_ += bytes;
  return load_little_endian<std::uint64_t>(digits.data());
}

std::uint64_t MemberReader::skip(std::optional<std::uint64_t> nbytes) {
  if (!nbytes || *nbytes > end_ - position_) throw corrupt("a storage reaches beyond its member").at_offset(position_);
  position_ += *nbytes;
  return position_ - *nbytes;
}

void MemberReader::expect_end() const {
  if (position_ != end_) throw corrupt("bytes behind the end of a member").at_offset(position_);
}

}  // namespace weightstore::pytorch
