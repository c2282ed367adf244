#include <algorithm>
#include <cstring>
#include <utility>

#include "io/available_memory.h"
#include "io/huge_buffer.h"
#include "kernels/cast_kernels.h"
#include "kernels/transpose_view.h"
#include "transform/threads.h"
#include "transform/unit_bytes.h"
#include "weightstore/error.h"
#include "weightstore/transform.h"

namespace weightstore {
namespace {

// Of input rows, in a band of a transpose: whole cache lines.
constexpr std::size_t kBandBytes = 128;
constexpr std::size_t kMostBandBytes = std::size_t{32} << 20;

// Columns of the input are made in bands of neighbours, because they share its cache lines: straight into the output
// where whole bands fit, else into memory from which they are copied.
class TransposedBytes final : public ByteProducer {
 public:
  TransposedBytes(std::shared_ptr<ByteProducer> input, std::size_t item_bytes, std::uint64_t rows,
                  std::uint64_t columns)
      : input_(std::move(input)),
        item_bytes_(item_bytes),
        rows_(rows),
        columns_(columns),
        column_bytes_(rows * item_bytes),
        band_columns_(std::clamp<std::uint64_t>(kMostBandBytes / std::max<std::uint64_t>(column_bytes_, 1), 1,
                                                kBandBytes / item_bytes)) {}

  std::uint64_t size() const override { return column_bytes_ * columns_; }

  void fill(std::uint64_t offset, MutableBytes out) override {
    const std::uint64_t band_bytes = band_columns_ * column_bytes_;
    while (!out.empty()) {
      const std::uint64_t first = offset / band_bytes * band_columns_;
      const std::uint64_t inside = offset % band_bytes;
      const std::uint64_t length = std::min(band_columns_, columns_ - first) * column_bytes_;
      std::size_t count;
      if (inside == 0 && out.size() >= length) {
        const bool to_the_end = out.size() >= size() - offset;
        count = to_the_end ? size() - offset : out.size() / band_bytes * band_bytes;
        make(first, out.first(count));
      } else {
        const ConstBytes band = band_from(first, length);
        count = std::min<std::size_t>(out.size(), length - inside);
        std::memcpy(out.data(), band.data() + inside, count);
      }
      offset += count;
      out = out.subspan(count);
    }
  }

  void finished() override {
    copy_ = {};
    band_ = {};
    input_->finished();
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  // As many columns as `out` has room for, from `first` on.
  void make(std::uint64_t first, MutableBytes out) {
    const std::byte* begin = input().data() + first * item_bytes_;
    transform::transpose_view({begin, columns_ * item_bytes_, rows_, out.size() / column_bytes_, item_bytes_},
                              out.data(), column_bytes_, 0);
  }

  ConstBytes band_from(std::uint64_t first, std::uint64_t length) {
    if (band_.bytes.empty()) {
      band_ = io::allocate_bulk(std::min(band_columns_, columns_) * column_bytes_);
      band_first_ = kNone;
    }
    if (band_first_ != first) make(first, band_.bytes.first(length));
    band_first_ = first;
    return band_.bytes;
  }

  ConstBytes input() {
    if (const auto bytes = input_->resident()) return *bytes;
    if (copy_.bytes.empty()) {
      io::require_memory(size());
      SharedMutableBytes copy = io::allocate_bulk(size());
      input_->fill(0, copy.bytes);
      copy_ = std::move(copy);
    }
    return copy_.bytes;
  }

  const std::shared_ptr<ByteProducer> input_;
  const std::size_t item_bytes_;
  const std::uint64_t rows_;
  const std::uint64_t columns_;
  const std::uint64_t column_bytes_;
  const std::uint64_t band_columns_;
  SharedMutableBytes copy_;
  SharedMutableBytes band_;
  std::uint64_t band_first_ = kNone;
};

}  // namespace

std::shared_ptr<ByteProducer> cast_bytes(std::shared_ptr<ByteProducer> bytes, DType from, DType to) {
  if (can_cast(from, to) && kernels::cast_kernel(from, to) == nullptr) return bytes;
  cast_size(bytes->size(), from, to);
  return transform::unit_bytes(std::move(bytes), bits_of(from) / 8, bits_of(to) / 8,
                               [from, to](ConstBytes in, MutableBytes out) { cast(in, from, to, out); });
}

std::shared_ptr<ByteProducer> transposed_bytes(std::shared_ptr<ByteProducer> bytes, std::size_t item_bytes,
                                               std::uint64_t rows, std::uint64_t columns) {
  kernels::check_matrix(bytes->size(), item_bytes, rows, columns);
  if (rows <= 1 || columns <= 1) return bytes;
  return std::make_shared<TransposedBytes>(std::move(bytes), item_bytes, rows, columns);
}

}  // namespace weightstore
