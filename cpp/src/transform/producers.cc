#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "io/available_memory.h"
#include "io/huge_buffer.h"
#include "kernels/cast_kernels.h"
#include "kernels/transpose_view.h"
#include "transform/threads.h"
#include "weightstore/error.h"
#include "weightstore/transform.h"

namespace weightstore {
namespace {

// What a cast takes from its input at a time; stays in the inner cache.
constexpr std::size_t kStepBytes = 256u << 10;
// Of input rows, in a band of a transpose: whole cache lines.
constexpr std::size_t kBandBytes = 128;
constexpr std::size_t kMostBandBytes = std::size_t{32} << 20;

// A chunk of the file may end inside a number. The number is then converted once and kept, because the input can not be
// asked for it again.
class CastBytes final : public ByteProducer {
 public:
  CastBytes(std::shared_ptr<ByteProducer> input, DType from, DType to)
      : input_(std::move(input)),
        size_(cast_size(input_->size(), from, to)),
        from_(from),
        to_(to),
        from_bytes_(bits_of(from) / 8),
        to_bytes_(bits_of(to) / 8) {}

  std::uint64_t size() const override { return size_; }

  void fill(std::uint64_t offset, MutableBytes out) override {
    if (offset == 0) cut_number_ = kNone;
    if (const std::size_t inside = offset % to_bytes_; inside != 0) {
      const std::size_t count = std::min(out.size(), to_bytes_ - inside);
      copy_cut(offset / to_bytes_, inside, out.first(count));
      offset += count;
      out = out.subspan(count);
    }
    const std::size_t whole = out.size() / to_bytes_ * to_bytes_;
    if (whole != 0) convert(offset / to_bytes_, out.first(whole));
    if (whole != out.size()) copy_cut((offset + whole) / to_bytes_, 0, out.subspan(whole));
  }

  void finished() override {
    step_ = {};
    input_->finished();
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  void copy_cut(std::uint64_t number, std::size_t inside, MutableBytes out) {
    if (cut_number_ != number) {
      convert(number, MutableBytes(cut_).first(to_bytes_));
      cut_number_ = number;
    }
    std::copy_n(cut_.begin() + static_cast<std::ptrdiff_t>(inside), out.size(), out.begin());
  }

  void convert(std::uint64_t first, MutableBytes out) {
    const std::size_t count = out.size() / to_bytes_;
    if (const auto bytes = input_->resident()) {
      return cast(bytes->subspan(first * from_bytes_, count * from_bytes_), from_, to_, out);
    }
    if (step_.bytes.empty()) step_ = io::allocate_bulk(kStepBytes);
    const std::size_t most = kStepBytes / from_bytes_;
    for (std::size_t done = 0; done < count; done += most) {
      const std::size_t numbers = std::min(most, count - done);
      const MutableBytes in = step_.bytes.first(numbers * from_bytes_);
      input_->fill((first + done) * from_bytes_, in);
      cast(in, from_, to_, out.subspan(done * to_bytes_, numbers * to_bytes_));
    }
  }

  const std::shared_ptr<ByteProducer> input_;
  const std::uint64_t size_;
  const DType from_;
  const DType to_;
  const std::size_t from_bytes_;
  const std::size_t to_bytes_;
  SharedMutableBytes step_;
  std::array<std::byte, 8> cut_{};
  std::uint64_t cut_number_ = kNone;
};

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
  return std::make_shared<CastBytes>(std::move(bytes), from, to);
}

std::shared_ptr<ByteProducer> transposed_bytes(std::shared_ptr<ByteProducer> bytes, std::size_t item_bytes,
                                               std::uint64_t rows, std::uint64_t columns) {
  kernels::check_matrix(bytes->size(), item_bytes, rows, columns);
  if (rows <= 1 || columns <= 1) return bytes;
  return std::make_shared<TransposedBytes>(std::move(bytes), item_bytes, rows, columns);
}

}  // namespace weightstore
