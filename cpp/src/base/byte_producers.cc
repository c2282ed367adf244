#include <cstring>
#include <utility>

#include "base/checked.h"
#include "weightstore/byte_producer.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

class ResidentBytes final : public ByteProducer {
 public:
  ResidentBytes(ConstBytes bytes, std::shared_ptr<const void> owner) : bytes_(bytes), owner_(std::move(owner)) {}

  std::uint64_t size() const override { return bytes_.size(); }
  std::optional<ConstBytes> resident() const override { return bytes_; }
  void fill(std::uint64_t offset, MutableBytes out) override {
    if (!out.empty()) std::memcpy(out.data(), bytes_.subspan(offset, out.size()).data(), out.size());
  }

 private:
  ConstBytes bytes_;
  std::shared_ptr<const void> owner_;
};

class DeferredBytes final : public ByteProducer {
 public:
  DeferredBytes(std::uint64_t size, std::function<void(std::uint64_t, MutableBytes)> fill)
      : size_(size), fill_(std::move(fill)) {}

  std::uint64_t size() const override { return size_; }
  void fill(std::uint64_t offset, MutableBytes out) override { fill_(offset, out); }

 private:
  const std::uint64_t size_;
  const std::function<void(std::uint64_t, MutableBytes)> fill_;
};

class SourceBytes final : public ByteProducer {
 public:
  SourceBytes(std::shared_ptr<const ByteSource> source, std::uint64_t offset, std::uint64_t size)
      : source_(std::move(source)), offset_(offset), size_(size) {
    // Not for files: reading on copes with one that shrinks, touching its mapping does not.
    if (source_->descriptor() < 0) view_ = source_->view(offset_, size_);
  }

  std::uint64_t size() const override { return size_; }
  void fill(std::uint64_t offset, MutableBytes out) override { source_->read_at(offset_ + offset, out); }
  std::optional<ConstBytes> resident() const override {
    if (!view_) return std::nullopt;
    return view_->bytes;
  }

 private:
  const std::shared_ptr<const ByteSource> source_;
  const std::uint64_t offset_;
  const std::uint64_t size_;
  std::optional<SharedBytes> view_;
};

}  // namespace

std::shared_ptr<ByteProducer> resident_bytes(ConstBytes bytes, std::shared_ptr<const void> owner) {
  if (bytes.data() == nullptr && !bytes.empty()) {
    throw Error(ErrorCode::kInvalidArgument, std::to_string(bytes.size()) + " bytes at a null pointer");
  }
  return std::make_shared<ResidentBytes>(bytes, std::move(owner));
}

std::shared_ptr<ByteProducer> deferred_bytes(std::uint64_t size,
                                             std::function<void(std::uint64_t, MutableBytes)> fill) {
  return std::make_shared<DeferredBytes>(size, std::move(fill));
}

std::shared_ptr<ByteProducer> source_bytes(std::shared_ptr<const ByteSource> source, std::uint64_t offset,
                                           std::uint64_t size) {
  const auto end = checked_add(offset, size);
  if (!end || *end > source->size()) {
    throw Error(ErrorCode::kInvalidArgument, "the range of " + std::to_string(size) +
                                                 " bytes lies outside the source of " + std::to_string(source->size()))
        .in_file(source->name())
        .at_offset(offset);
  }
  return std::make_shared<SourceBytes>(std::move(source), offset, size);
}

}  // namespace weightstore
