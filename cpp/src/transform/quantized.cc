#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "io/available_memory.h"
#include "io/huge_buffer.h"
#include "io/parallel.h"
#include "kernels/decode_as.h"
#include "kernels/quant_layout.h"
#include "kernels/quantize.h"
#include "transform/decode_parallel.h"
#include "transform/threads.h"
#include "weightstore/transform.h"

namespace weightstore {
namespace {

// All bytes of a producer: where they are, or read into `copy`.
ConstBytes all_bytes(ByteProducer& input, SharedMutableBytes& copy) {
  if (const auto bytes = input.resident()) return *bytes;
  if (copy.bytes.empty() && input.size() != 0) {
    io::require_memory(input.size());
    SharedMutableBytes read = io::allocate_bulk(input.size());
    input.fill(0, read.bytes);
    copy = std::move(read);
  }
  return copy.bytes;
}

// Makes F32. A chunk of the file may begin or end inside a number, which is then made twice.
class DequantizedBytes final : public ByteProducer {
 public:
  DequantizedBytes(std::shared_ptr<ByteProducer> input, const QuantScheme& scheme,
                   const std::vector<std::uint64_t>& shape)
      : input_(std::move(input)), layout_(scheme, shape, input_->size()) {}

  std::uint64_t size() const override { return layout_.size() * sizeof(float); }

  void fill(std::uint64_t offset, MutableBytes out) override {
    if (out.empty()) return;
    const std::byte* payload = all_bytes(*input_, copy_).data();
    const auto take_cut = [&] {
      float number;
      layout_.decode(payload, offset / sizeof number, 1, &number, false);
      const std::size_t inside = offset % sizeof number;
      const std::size_t count = std::min(out.size(), sizeof number - inside);
      std::memcpy(out.data(), reinterpret_cast<const std::byte*>(&number) + inside, count);
      offset += count;
      out = out.subspan(count);
    };
    if (offset % sizeof(float) != 0) take_cut();
    const std::size_t whole = out.size() / sizeof(float) * sizeof(float);
    if (whole != 0)
      transform::decode_parallel(layout_, payload, DType::kF32, offset / sizeof(float), out.first(whole), 0);
    offset += whole;
    out = out.subspan(whole);
    if (!out.empty()) take_cut();
  }

  void finished() override {
    copy_ = {};
    input_->finished();
  }

 private:
  const std::shared_ptr<ByteProducer> input_;
  const kernels::QuantLayout layout_;
  SharedMutableBytes copy_;
};

class QuantizedBytes final : public ByteProducer {
 public:
  QuantizedBytes(std::shared_ptr<ByteProducer> input, const QuantScheme& scheme, std::vector<std::uint64_t> shape)
      : input_(std::move(input)), scheme_(scheme), shape_(std::move(shape)), size_(payload_bytes(scheme_, shape_)) {}

  std::uint64_t size() const override { return size_; }

  void fill(std::uint64_t offset, MutableBytes out) override {
    if (offset == 0 || payload_.bytes.empty()) make();
    std::memcpy(out.data(), payload_.bytes.data() + offset, out.size());
  }

  void finished() override {
    payload_ = {};
    input_->finished();
  }

 private:
  void make() {
    SharedMutableBytes copy;
    ConstBytes numbers = all_bytes(*input_, copy);
    if (reinterpret_cast<std::uintptr_t>(numbers.data()) % alignof(float) != 0) {
      copy = io::allocate_bulk(numbers.size());
      std::memcpy(copy.bytes.data(), numbers.data(), numbers.size());
      numbers = copy.bytes;
    }
    io::require_memory(size_);
    payload_ = io::allocate_bulk(size_);
    quantize(numbers, scheme_, shape_, payload_.bytes);
  }

  const std::shared_ptr<ByteProducer> input_;
  const QuantScheme scheme_;
  const std::vector<std::uint64_t> shape_;
  const std::uint64_t size_;
  SharedMutableBytes payload_;
};

}  // namespace

void dequantize(ConstBytes payload, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, DType to,
                std::uint64_t first, MutableBytes out, unsigned threads) {
  const kernels::QuantLayout layout(scheme, shape, payload.size());
  kernels::check_output(layout, to, first, out);
  transform::decode_parallel(layout, payload.data(), to, first, out, threads);
}

void quantize(ConstBytes in, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, MutableBytes out,
              unsigned threads) {
  constexpr std::uint64_t kChunkNumbers = 256u << 10;
  constexpr std::uint64_t kCachedNumbers = 32u << 10;  // which the second level of a cache has
  kernels::Quantizer quantizer(in, scheme, shape, out);
  const std::uint64_t size = quantizer.size();
  const auto for_chunks = [&](std::uint64_t chunk, const auto& work) {
    io::parallel_for((size + chunk - 1) / chunk, transform::threads_for(in.size(), threads),
                     [&](std::size_t i) { work(i * chunk, std::min(size, (i + 1) * chunk)); });
  };
  // Blocks that fit are measured and encoded at once, so that the numbers come from memory only once.
  const bool are_small = std::max(quantizer.group(), quantizer.granule()) <= kCachedNumbers;
  const std::uint64_t part = are_small ? std::lcm(quantizer.group(), quantizer.granule()) : size;
  if (size != 0 && part <= kCachedNumbers) {
    const std::uint64_t cached = kCachedNumbers / part * part;
    for_chunks(kChunkNumbers / part * part, [&](std::uint64_t begin, std::uint64_t end) {
      for (; begin < end; begin += cached) quantizer.quantize_groups(begin, std::min(end, begin + cached));
    });
    return;
  }
  const std::uint64_t granule = quantizer.granule();
  const std::uint64_t chunk = std::max(kChunkNumbers / granule, std::uint64_t{1}) * granule;
  for_chunks(chunk, [&](std::uint64_t begin, std::uint64_t end) { quantizer.find_peaks(begin, end); });
  quantizer.make_scales();
  for_chunks(chunk, [&](std::uint64_t begin, std::uint64_t end) { quantizer.encode(begin, end); });
}

std::shared_ptr<ByteProducer> dequantized_bytes(std::shared_ptr<ByteProducer> bytes, const QuantScheme& scheme,
                                                const std::vector<std::uint64_t>& shape, DType to) {
  kernels::check_type(to);
  auto numbers = std::make_shared<DequantizedBytes>(std::move(bytes), scheme, shape);
  return cast_bytes(std::move(numbers), DType::kF32, to);
}

std::shared_ptr<ByteProducer> quantized_bytes(std::shared_ptr<ByteProducer> bytes, const QuantScheme& scheme,
                                              std::vector<std::uint64_t> shape) {
  kernels::check_quantize(bytes->size(), scheme, shape, payload_bytes(scheme, shape));
  return std::make_shared<QuantizedBytes>(std::move(bytes), scheme, std::move(shape));
}

}  // namespace weightstore
