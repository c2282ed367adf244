#include "base/strided/strided_source.h"

#include <string>
#include <utility>

#include "weightstore/error.h"

namespace weightstore {
namespace {

class StridedSource final : public ByteSource {
 public:
  StridedSource(std::shared_ptr<const ByteSource> file, StridedElements elements)
      : file_(std::move(file)), reader_(std::move(elements)) {}

  std::uint64_t size() const override { return reader_.size(); }
  std::string name() const override { return file_->name(); }
  std::uint64_t begin() const { return reader_.begin(); }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    if (offset > size() || out.size() > size() - offset) {
      throw Error(ErrorCode::kIo, "read of " + std::to_string(out.size()) + " bytes beyond the end of a tensor of " +
                                      std::to_string(size()))
          .in_file(name())
          .at_offset(offset);
    }
    reader_.read(*file_, offset, out);
  }

 private:
  const std::shared_ptr<const ByteSource> file_;
  const StridedReader reader_;
};

}  // namespace

std::shared_ptr<const ByteSource> strided_source(std::shared_ptr<const ByteSource> file, StridedElements elements) {
  return std::make_shared<StridedSource>(std::move(file), std::move(elements));
}

std::uint64_t strided_source_bytes(std::size_t rank) {
  constexpr std::uint64_t kHeapOverhead = 16;                                // of the allocator
  constexpr std::uint64_t kControl = 32;                                     // of std::make_shared
  constexpr std::uint64_t kPlace = 3 * sizeof(std::shared_ptr<ByteSource>);  // in an array that doubles
  return kHeapOverhead + sizeof(StridedSource) + kControl + kPlace + kHeapOverhead +
         rank * sizeof(StridedElements::Dim);
}

std::optional<std::uint64_t> strided_source_begin(const ByteSource& source) {
  const auto* strided = dynamic_cast<const StridedSource*>(&source);
  if (strided == nullptr) return std::nullopt;
  return strided->begin();
}

}  // namespace weightstore
