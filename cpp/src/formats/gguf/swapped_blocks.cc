#include "formats/gguf/swapped_blocks.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "weightstore/error.h"

namespace weightstore::gguf {
namespace {

// A number of several bytes in a block.
struct Field {
  unsigned offset;
  unsigned width;  // 0: there is no field
};
using Fields = std::array<Field, 3>;

// ggml reads these fields as numbers of the machine; everything else in a block is bytes.
Fields fields_of(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kQ8_0:
    case DType::kIQ4_NL:
    case DType::kQ1_0:
      return {{{0, 2}}};  // d
    case DType::kQ4_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {{{0, 2}, {2, 2}}};  // d, and m or dmin
    case DType::kQ5_0:
      return {{{0, 2}, {2, 4}}};  // d, the high bits
    case DType::kQ5_1:
      return {{{0, 2}, {2, 2}, {4, 4}}};  // d, m, the high bits
    case DType::kQ2_K:
      return {{{80, 2}, {82, 2}}};
    case DType::kQ3_K:
      return {{{108, 2}}};
    case DType::kQ6_K:
      return {{{208, 2}}};
    case DType::kIQ4_XS:
      return {{{0, 2}, {2, 2}}};  // d, the high bits of the scales
    case DType::kTQ1_0:
      return {{{52, 2}}};
    case DType::kTQ2_0:
      return {{{64, 2}}};
    default:
      return {};
  }
}

class SwappedBlocks final : public ByteSource {
 public:
  SwappedBlocks(std::shared_ptr<const ByteSource> file, std::uint64_t begin, std::uint64_t size, DType dtype)
      : file_(std::move(file)), begin_(begin), size_(size), block_(block_of(dtype)->bytes), fields_(fields_of(dtype)) {}

  std::uint64_t size() const override { return size_; }
  std::string name() const override { return file_->name(); }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      throw Error(ErrorCode::kIo, "read of " + std::to_string(out.size()) + " bytes beyond the end of a tensor of " +
                                      std::to_string(size_))
          .in_file(name())
          .at_offset(offset);
    }
    while (!out.empty()) {
      const std::uint64_t inside = offset % block_;
      std::size_t count = out.size() / block_ * block_;
      if (inside == 0 && count != 0) {
        file_->read_at(begin_ + offset, out.first(count));
        for (std::size_t at = 0; at < count; at += block_) turn(out.subspan(at, block_));
      } else {  // part of a block
        std::array<std::byte, kMostBlockBytes> whole;
        const auto block = MutableBytes(whole).first(block_);
        file_->read_at(begin_ + offset - inside, block);
        turn(block);
        count = std::min<std::size_t>(out.size(), block_ - inside);
        std::copy_n(block.begin() + static_cast<std::ptrdiff_t>(inside), count, out.begin());
      }
      offset += count;
      out = out.subspan(count);
    }
  }

 private:
  static constexpr std::size_t kMostBlockBytes = 292;

  void turn(MutableBytes block) const {
    for (const Field& field : fields_) {
      const auto number = block.subspan(field.offset, field.width);
      std::reverse(number.begin(), number.end());
    }
  }

  const std::shared_ptr<const ByteSource> file_;
  const std::uint64_t begin_;
  const std::uint64_t size_;
  const unsigned block_;
  const Fields fields_;
};

}  // namespace

bool has_swapped_blocks(DType dtype) { return block_of(dtype) && fields_of(dtype)[0].width != 0; }

std::shared_ptr<const ByteSource> swapped_blocks(std::shared_ptr<const ByteSource> file, std::uint64_t begin,
                                                 std::uint64_t size, DType dtype) {
  return std::make_shared<SwappedBlocks>(std::move(file), begin, size, dtype);
}

}  // namespace weightstore::gguf
