#include "transform/unit_bytes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "io/huge_buffer.h"

namespace weightstore::transform {
namespace {

// What is taken from the input at a time; stays in the inner cache.
constexpr std::size_t kStepBytes = 256u << 10;

// A chunk of the file may end inside a unit. The unit is then converted once and kept, because the input can not be
// asked for it again.
class UnitBytes final : public ByteProducer {
 public:
  UnitBytes(std::shared_ptr<ByteProducer> input, std::size_t from_bytes, std::size_t to_bytes,
            std::function<void(ConstBytes, MutableBytes)> convert)
      : input_(std::move(input)),
        from_bytes_(from_bytes),
        to_bytes_(to_bytes),
        convert_(std::move(convert)),
        cut_(to_bytes) {}

  std::uint64_t size() const override { return input_->size() / from_bytes_ * to_bytes_; }

  void fill(std::uint64_t offset, MutableBytes out) override {
    if (offset == 0) cut_unit_ = kNone;
    if (const std::size_t inside = offset % to_bytes_; inside != 0) {
      const std::size_t count = std::min(out.size(), to_bytes_ - inside);
      copy_cut(offset / to_bytes_, inside, out.first(count));
      offset += count;
      out = out.subspan(count);
    }
    const std::size_t whole = out.size() / to_bytes_ * to_bytes_;
    if (whole != 0) make(offset / to_bytes_, out.first(whole));
    if (whole != out.size()) copy_cut((offset + whole) / to_bytes_, 0, out.subspan(whole));
  }

  void finished() override {
    step_ = {};
    input_->finished();
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  void copy_cut(std::uint64_t unit, std::size_t inside, MutableBytes out) {
    if (cut_unit_ != unit) {
      make(unit, cut_);
      cut_unit_ = unit;
    }
    std::copy_n(cut_.begin() + static_cast<std::ptrdiff_t>(inside), out.size(), out.begin());
  }

  // As many units as `out` has room for, from `first` on.
  void make(std::uint64_t first, MutableBytes out) {
    const std::size_t count = out.size() / to_bytes_;
    if (const auto bytes = input_->resident()) {
      return convert_(bytes->subspan(first * from_bytes_, count * from_bytes_), out);
    }
    if (step_.bytes.empty()) step_ = io::allocate_bulk(kStepBytes);
    const std::size_t most = kStepBytes / from_bytes_;
    for (std::size_t done = 0; done < count; done += most) {
      const std::size_t units = std::min(most, count - done);
      const MutableBytes in = step_.bytes.first(units * from_bytes_);
      input_->fill((first + done) * from_bytes_, in);
      convert_(in, out.subspan(done * to_bytes_, units * to_bytes_));
    }
  }

  const std::shared_ptr<ByteProducer> input_;
  const std::size_t from_bytes_;
  const std::size_t to_bytes_;
  const std::function<void(ConstBytes, MutableBytes)> convert_;
  SharedMutableBytes step_;
  std::vector<std::byte> cut_;
  std::uint64_t cut_unit_ = kNone;
};

}  // namespace

std::shared_ptr<ByteProducer> unit_bytes(std::shared_ptr<ByteProducer> input, std::size_t from_bytes,
                                         std::size_t to_bytes, std::function<void(ConstBytes, MutableBytes)> convert) {
  return std::make_shared<UnitBytes>(std::move(input), from_bytes, to_bytes, std::move(convert));
}

}  // namespace weightstore::transform
