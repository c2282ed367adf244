#include "base/range_source.h"

#include <string>
#include <utility>

#include "base/checked.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

// Has no descriptor: its offsets would be those of the whole.
class RangeSource final : public ByteSource {
 public:
  RangeSource(std::shared_ptr<const ByteSource> whole, std::uint64_t begin, std::uint64_t size)
      : whole_(std::move(whole)), begin_(begin), size_(size) {}

  std::uint64_t size() const override { return size_; }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      throw Error(ErrorCode::kIo, "read of " + std::to_string(out.size()) + " bytes beyond the end of a record of " +
                                      std::to_string(size_) + " bytes")
          .in_file(name())
          .at_offset(offset);
    }
    whole_->read_at(begin_ + offset, out);
  }

  std::optional<SharedBytes> view(std::uint64_t offset, std::uint64_t length) const override {
    return whole_->view(begin_ + offset, length);
  }
  std::optional<SharedMutableBytes> private_view(std::uint64_t offset, std::uint64_t length) const override {
    return whole_->private_view(begin_ + offset, length);
  }
  void populate(std::uint64_t offset, std::uint64_t length) const override {
    whole_->populate(begin_ + offset, length);
  }
  void discard(std::uint64_t offset, std::uint64_t length) const noexcept override {
    whole_->discard(begin_ + offset, length);
  }

  std::string name() const override { return whole_->name(); }

 private:
  const std::shared_ptr<const ByteSource> whole_;
  const std::uint64_t begin_;
  const std::uint64_t size_;
};

}  // namespace

std::shared_ptr<const ByteSource> range_source(std::shared_ptr<const ByteSource> whole, std::uint64_t begin,
                                               std::uint64_t size) {
  const auto end = checked_add(begin, size);
  if (!end || *end > whole->size()) {
    throw Error(ErrorCode::kCorrupt, "a record of " + std::to_string(size) + " bytes ends after the file, which has " +
                                         std::to_string(whole->size()) + " bytes")
        .in_file(whole->name())
        .at_offset(begin);
  }
  return std::make_shared<RangeSource>(std::move(whole), begin, size);
}

}  // namespace weightstore
