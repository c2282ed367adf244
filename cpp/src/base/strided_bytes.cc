#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "weightstore/byte_producer.h"
#include "weightstore/error.h"

// The array is simplified once: dimensions of one element go, neighbours that are one run in memory become one, and the
// last dimension becomes part of the element when it is contiguous. What is left is a "row" - the last dimension, or
// one long element - below outer dimensions, and fill() copies whole rows in between the two that a block cuts.
//
// A transposed matrix has rows whose elements are far apart while the elements of neighbouring rows are close: several
// rows are then gathered together in tiles, so that every cache line fetched is used up.

namespace weightstore {
namespace {

constexpr std::uint64_t kTile = 32;

template <class Item>
void copy_row(std::byte* out, const std::byte* from, std::uint64_t count, std::int64_t stride) {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::memcpy(out + i * sizeof(Item), from + static_cast<std::int64_t>(i) * stride, sizeof(Item));
  }
}

template <class Item>
void copy_rows(std::byte* out, const std::byte* from, std::uint64_t rows, std::int64_t row_stride,
               std::uint64_t columns, std::int64_t stride) {
  for (std::uint64_t r = 0; r < rows; r += kTile) {
    const std::uint64_t r_end = std::min(rows, r + kTile);
    for (std::uint64_t c = 0; c < columns; c += kTile) {
      const std::uint64_t count = std::min(kTile, columns - c);
      for (std::uint64_t row = r; row < r_end; ++row) {
        copy_row<Item>(out + (row * columns + c) * sizeof(Item),
                       from + static_cast<std::int64_t>(row) * row_stride + static_cast<std::int64_t>(c) * stride,
                       count, stride);
      }
    }
  }
}

struct Item16 {
  std::byte bytes[16];
};

struct Dim {
  std::uint64_t size;
  std::int64_t stride;
};

std::uint64_t byte_count(const StridedArray& array) {
  std::uint64_t bytes = array.item_bytes;
  for (const std::uint64_t dim : array.shape) {
    const auto product = checked_mul(bytes, dim);
    if (!product) throw Error(ErrorCode::kLimit, "the array has more than 2^64 bytes");
    bytes = *product;
  }
  return bytes;
}

void check(const StridedArray& array) {
  if (array.item_bytes < 1 || array.item_bytes > 16) {
    throw Error(ErrorCode::kInvalidArgument,
                "elements must have 1 to 16 bytes, not " + std::to_string(array.item_bytes));
  }
  if (array.shape.size() != array.byte_strides.size()) {
    throw Error(ErrorCode::kInvalidArgument, std::to_string(array.shape.size()) + " dimensions, but " +
                                                 std::to_string(array.byte_strides.size()) + " strides");
  }
  if (array.data == nullptr && std::find(array.shape.begin(), array.shape.end(), 0u) == array.shape.end()) {
    throw Error(ErrorCode::kInvalidArgument, "an array with elements at a null pointer");
  }
  if (array.sign_bytes == 0) return;
  const std::size_t components = array.conjugate ? 2 : 1;
  const bool known = array.sign_bytes == 1 || array.sign_bytes == 2 || array.sign_bytes == 4 || array.sign_bytes == 8;
  if (!known || array.item_bytes % (array.sign_bytes * components) != 0) {
    throw Error(ErrorCode::kInvalidArgument, "no sign to change in components of " + std::to_string(array.sign_bytes) +
                                                 " bytes of elements of " + std::to_string(array.item_bytes));
  }
}

// The outermost first, without dimensions of one element, runs merged.
std::vector<Dim> simplified(const StridedArray& array) {
  std::vector<Dim> dims;
  for (std::size_t i = 0; i < array.shape.size(); ++i) {
    const Dim dim{array.shape[i], array.byte_strides[i]};
    if (dim.size == 1) continue;
    std::int64_t extent;
    if (!dims.empty() && !__builtin_mul_overflow(dim.stride, dim.size, &extent) && dims.back().stride == extent) {
      dims.back() = {dims.back().size * dim.size, dim.stride};
    } else {
      dims.push_back(dim);
    }
  }
  return dims;
}

class StridedBytes final : public ByteProducer {
 public:
  StridedBytes(const StridedArray& array, std::shared_ptr<const void> owner)
      : data_(array.data), size_(byte_count(array)), element_(array.item_bytes), owner_(std::move(owner)) {
    if (size_ == 0) return;
    dims_ = simplified(array);
    if (!dims_.empty() && dims_.back().stride == static_cast<std::int64_t>(element_)) {
      element_ *= dims_.back().size;
      dims_.pop_back();
    }
    if (element_ <= 16 && !dims_.empty()) {
      row_ = dims_.back();
      dims_.pop_back();
    }
    row_bytes_ = element_ * row_.size;
    set_signs(array);
  }

  std::uint64_t size() const override { return size_; }

  std::optional<ConstBytes> resident() const override {
    const bool contiguous = dims_.empty() && row_.size == 1 && !changes_signs_;
    if (size_ != 0 && !contiguous) return std::nullopt;
    return ConstBytes(data_, size_);
  }

  void fill(std::uint64_t offset, MutableBytes out) override {
    std::uint64_t position = offset;
    for (MutableBytes rest = out; !rest.empty();) {
      const std::uint64_t inside = position % row_bytes_;
      std::uint64_t count = 0;
      if (inside != 0 || rest.size() < row_bytes_) {
        count = std::min<std::uint64_t>(rest.size(), row_bytes_ - inside);
        part_of_row(position / row_bytes_, inside, rest.first(count));
      } else {
        count = whole_rows(position / row_bytes_, rest);
      }
      position += count;
      rest = rest.subspan(count);
    }
    if (changes_signs_) change_signs(offset, out);
  }

 private:
  const std::byte* row_address(std::uint64_t row) const {
    const std::byte* address = data_;
    for (std::size_t i = dims_.size(); i-- > 0;) {
      address += static_cast<std::int64_t>(row % dims_[i].size) * dims_[i].stride;
      row /= dims_[i].size;
    }
    return address;
  }

  void part_of_row(std::uint64_t row, std::uint64_t inside, MutableBytes out) const {
    const std::byte* from = row_address(row);
    while (!out.empty()) {
      const std::uint64_t cut = inside % element_;
      const std::size_t count = std::min<std::uint64_t>(out.size(), element_ - cut);
      const std::byte* element = from + static_cast<std::int64_t>(inside / element_) * row_.stride;
      if (cut == 0 && out.size() > element_ && row_.size > 1) {
        const std::uint64_t elements = out.size() / element_;
        gather(out.data(), element, 1, 0, elements);
        out = out.subspan(elements * element_);
        inside += elements * element_;
        continue;
      }
      std::memcpy(out.data(), element + cut, count);
      out = out.subspan(count);
      inside += count;
    }
  }

  // Copies as many whole rows as fit and are evenly apart; returns their bytes.
  std::uint64_t whole_rows(std::uint64_t row, MutableBytes out) const {
    const std::byte* from = row_address(row);
    std::uint64_t rows = 1;
    std::int64_t stride = 0;
    if (!dims_.empty()) {
      rows = std::min<std::uint64_t>(out.size() / row_bytes_, dims_.back().size - row % dims_.back().size);
      stride = dims_.back().stride;
    }
    if (row_.size > 1) {
      gather(out.data(), from, rows, stride, row_.size);
    } else {
      for (std::uint64_t i = 0; i < rows; ++i) {
        std::memcpy(out.data() + i * element_, from + static_cast<std::int64_t>(i) * stride, element_);
      }
    }
    return rows * row_bytes_;
  }

  void gather(std::byte* out, const std::byte* from, std::uint64_t rows, std::int64_t row_stride,
              std::uint64_t columns) const {
    switch (element_) {
      case 1:
        return copy_rows<std::uint8_t>(out, from, rows, row_stride, columns, row_.stride);
      case 2:
        return copy_rows<std::uint16_t>(out, from, rows, row_stride, columns, row_.stride);
      case 4:
        return copy_rows<std::uint32_t>(out, from, rows, row_stride, columns, row_.stride);
      case 8:
        return copy_rows<std::uint64_t>(out, from, rows, row_stride, columns, row_.stride);
      case 16:
        return copy_rows<Item16>(out, from, rows, row_stride, columns, row_.stride);
      default:
        break;
    }
    for (std::uint64_t i = 0; i < rows * columns; ++i) {
      std::memcpy(out + i * element_,
                  from + static_cast<std::int64_t>(i / columns) * row_stride +
                      static_cast<std::int64_t>(i % columns) * row_.stride,
                  element_);
    }
  }

  // Which bits change repeats every two components, which 16 bytes hold a whole number of times.
  void set_signs(const StridedArray& array) {
    if (array.sign_bytes == 0) return;
    for (std::size_t i = array.sign_bytes - 1; i < flips_.size(); i += array.sign_bytes) {
      const bool imaginary = (i / array.sign_bytes) % 2 == 1;
      if (array.negate != (array.conjugate && imaginary)) flips_[i] = std::byte{0x80};
    }
    changes_signs_ = array.negate || array.conjugate;
  }

  void change_signs(std::uint64_t offset, MutableBytes out) const {
    std::array<std::byte, 16> flips;
    for (std::size_t i = 0; i < flips.size(); ++i) flips[i] = flips_[(offset + i) % flips_.size()];
    std::size_t i = 0;
    for (; i + 16 <= out.size(); i += 16) {
      for (std::size_t k = 0; k < 16; ++k) out[i + k] ^= flips[k];
    }
    for (; i < out.size(); ++i) out[i] ^= flips[i % 16];
  }

  const std::byte* const data_;
  const std::uint64_t size_;
  std::uint64_t element_;  // bytes copied as one
  Dim row_{1, 0};          // elements in a row
  std::uint64_t row_bytes_ = 1;
  std::vector<Dim> dims_;              // outside the rows
  std::array<std::byte, 16> flips_{};  // little-endian: the sign is in the last byte of a component
  bool changes_signs_ = false;
  std::shared_ptr<const void> owner_;
};

}  // namespace

std::shared_ptr<ByteProducer> strided_bytes(StridedArray array, std::shared_ptr<const void> owner) {
  check(array);
  return std::make_shared<StridedBytes>(array, std::move(owner));
}

}  // namespace weightstore
