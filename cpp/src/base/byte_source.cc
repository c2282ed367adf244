#include "weightstore/byte_source.h"

#include <cstring>
#include <utility>

#include "weightstore/error.h"

namespace weightstore {
namespace {

class MemorySource final : public ByteSource {
 public:
  MemorySource(ConstBytes bytes, std::shared_ptr<const void> owner, std::string name)
      : bytes_(bytes), owner_(std::move(owner)), name_(std::move(name)) {}

  std::uint64_t size() const override { return bytes_.size(); }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
      throw Error(ErrorCode::kIo, "read of " + std::to_string(out.size()) + " bytes beyond the end of " +
                                      std::to_string(bytes_.size()) + " bytes of memory")
          .in_file(name_)
          .at_offset(offset);
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }

  std::optional<SharedBytes> view(std::uint64_t offset, std::uint64_t length) const override {
    return SharedBytes{bytes_.subspan(offset, length), owner_};
  }

  std::string name() const override { return name_; }

 private:
  ConstBytes bytes_;
  std::shared_ptr<const void> owner_;
  std::string name_;
};

}  // namespace

std::optional<SharedBytes> ByteSource::view(std::uint64_t, std::uint64_t) const { return std::nullopt; }

std::optional<SharedMutableBytes> ByteSource::private_view(std::uint64_t, std::uint64_t) const { return std::nullopt; }

void ByteSource::populate(std::uint64_t, std::uint64_t) const {}

void ByteSource::discard(std::uint64_t, std::uint64_t) const noexcept {}

std::shared_ptr<const ByteSource> memory_source(ConstBytes bytes, std::shared_ptr<const void> owner, std::string name) {
  return std::make_shared<MemorySource>(bytes, std::move(owner), std::move(name));
}

}  // namespace weightstore
