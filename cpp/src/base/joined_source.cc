#include "base/joined_source.h"

#include <utility>

#include "weightstore/error.h"

namespace weightstore {

JoinedSource::JoinedSource(std::vector<SourceRange> ranges, std::string name)
    : ranges_(std::move(ranges)), name_(std::move(name)) {
  ends_.reserve(ranges_.size());
  for (const SourceRange& range : ranges_) ends_.push_back(size() + range.length);
}

void JoinedSource::read_at(std::uint64_t offset, MutableBytes out) const {
  if (offset > size() || out.size() > size() - offset) {
    throw Error(ErrorCode::kIo, "read of " + std::to_string(out.size()) + " bytes beyond the end of a tensor of " +
                                    std::to_string(size()))
        .in_file(name_)
        .at_offset(offset);
  }
  for_each_piece(offset, out.size(),
                 [&](const ByteSource& source, std::uint64_t at, std::uint64_t done, std::uint64_t length) {
                   source.read_at(at, out.subspan(done, length));
                 });
}

std::size_t JoinedSource::range_around(std::uint64_t offset, std::uint64_t length) const {
  const std::size_t i = range_at(offset);
  return i < ranges_.size() && length <= ends_[i] - offset ? i : ranges_.size();
}

std::optional<SharedBytes> JoinedSource::view(std::uint64_t offset, std::uint64_t length) const {
  const std::size_t i = range_around(offset, length);
  if (i == ranges_.size()) return std::nullopt;
  return ranges_[i].source->view(offset_in(i, offset), length);
}

std::optional<SharedMutableBytes> JoinedSource::private_view(std::uint64_t offset, std::uint64_t length) const {
  const std::size_t i = range_around(offset, length);
  if (i == ranges_.size()) return std::nullopt;
  return ranges_[i].source->private_view(offset_in(i, offset), length);
}

void JoinedSource::populate(std::uint64_t offset, std::uint64_t length) const {
  for_each_piece(offset, length, [](const ByteSource& source, std::uint64_t at, std::uint64_t, std::uint64_t size) {
    source.populate(at, size);
  });
}

void JoinedSource::discard(std::uint64_t offset, std::uint64_t length) const noexcept {
  for_each_piece(offset, length, [](const ByteSource& source, std::uint64_t at, std::uint64_t, std::uint64_t size) {
    source.discard(at, size);
  });
}

}  // namespace weightstore
