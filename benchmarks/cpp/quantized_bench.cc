// Quantized tensors of Burn to F32 and back, every kind of scheme, beside a copy of the F32 numbers on as many threads.
// Each round measures the copy and the scheme one after the other; the ratio is the median of the rounds' ratios. The
// time is that of the processors, so that other programs disturb less: both sides keep all threads busy.

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "benches.h"
#include "weightstore/error.h"
#include "weightstore/transform.h"

namespace benches {

using namespace weightstore;

namespace {

constexpr int kRounds = 7;
constexpr std::uint64_t kSide = 4096;

double seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

void copy(ConstBytes in, MutableBytes out) {
  const unsigned count = std::clamp(std::thread::hardware_concurrency(), 2u, 8u);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) {
    const std::size_t begin = in.size() / count * i;
    const std::size_t end = i + 1 == count ? in.size() : in.size() / count * (i + 1);
    threads.emplace_back([=] { std::memcpy(out.data() + begin, in.data() + begin, end - begin); });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Level {
  std::vector<std::uint8_t> block = {};  // none: the tensor
  bool has_tensor_scale = false;
};

// Memory in huge pages, as the library allocates results.
class Numbers {
 public:
  Numbers() : bytes_(static_cast<std::byte*>(std::aligned_alloc(kHugePage, kSize))) {
    madvise(bytes_, kSize, MADV_HUGEPAGE);
    std::uint32_t state = 1;
    for (std::size_t i = 0; i < kSize / sizeof(float); ++i) {
      state = state * 1664525 + 1013904223;
      const float number = static_cast<float>(state >> 8) * 0x1p-23f - 1;
      std::memcpy(bytes_ + i * sizeof number, &number, sizeof number);
    }
  }
  ~Numbers() { std::free(bytes_); }
  Numbers(const Numbers&) = delete;

  MutableBytes bytes() const { return {bytes_, kSize}; }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  static constexpr std::size_t kSize = kSide * kSide * sizeof(float);
  std::byte* const bytes_;
};

class Comparison {
 public:
  Comparison() {
    std::printf(
        "\nquantized tensors of %llu x %llu, F32 GB/s of a processor, and how fast that is beside a copy, %d rounds\n",
        static_cast<unsigned long long>(kSide), static_cast<unsigned long long>(kSide), kRounds);
    std::printf("%-52s %18s %18s\n", "scheme", "dequantize", "quantize");
  }

  // Prints one line. Does nothing for a scheme that the release does not dequantize.
  void run(const QuantScheme& scheme) {
    const std::vector<std::uint64_t> shape = {kSide, kSide};
    std::vector<std::byte> payload;
    try {
      payload.resize(payload_bytes(scheme, shape), std::byte{0x3e});
      dequantize(payload, scheme, shape, DType::kF32, 0, out_.bytes());
    } catch (const Error&) {
      return;
    }
    for (std::size_t i = 0; i < kSide * kSide / 8; ++i) payload[i] = static_cast<std::byte>(i * 37);
    std::printf("%-52s", (to_string(scheme) + ", " + std::string(name_of(scheme.release))).c_str());
    compare([&] { dequantize(payload, scheme, shape, DType::kF32, 0, out_.bytes()); });
    try {
      quantize(numbers_.bytes(), scheme, shape, payload);
      compare([&] { quantize(numbers_.bytes(), scheme, shape, payload); });
    } catch (const Error&) {
      std::printf("%19s", "not made");
    }
    std::printf("\n");
  }

 private:
  void compare(const std::function<void()>& work) {
    work();
    std::vector<double> times, ratios;
    for (int i = 0; i < kRounds; ++i) {
      const double copying = seconds([&] { copy(numbers_.bytes(), out_.bytes()); });
      times.push_back(seconds(work));
      ratios.push_back(copying / times.back());
    }
    std::printf("%10.2f %6.2fx", static_cast<double>(numbers_.bytes().size()) / median(times) / 1e9, median(ratios));
    std::fflush(stdout);
  }

  const Numbers numbers_;
  const Numbers out_;
};

}  // namespace

void bench_quantized() {
  using enum QuantValue;
  Comparison comparison;
  const auto run = [&](QuantValue value, QuantStore store, std::uint64_t packed_dim, const Level& level) {
    QuantScheme scheme;
    scheme.value = value;
    scheme.store = store;
    scheme.packed_dim = packed_dim;
    if (!level.block.empty()) {
      scheme.block = level.block;
      scheme.block_scale = QuantParam::kF32;
      if (!level.has_tensor_scale) scheme.tensor_scale.reset();
    }
    for (const BurnRelease release : {BurnRelease::k020, BurnRelease::k022, BurnRelease::k023}) {
      if (const auto spelled = as_release(scheme, release)) comparison.run(*spelled);
    }
  };
  for (const QuantValue value : {kQ8S, kQ4S, kQ2S, kE4M3, kE2M1}) {
    for (const Level& level : {Level{}, Level{{32}}, Level{{2, 16}}, Level{{16}, true}}) {
      run(value, QuantStore::kNative, 0, level);
      for (const QuantStore store : {QuantStore::kPackedU32, QuantStore::kPackedNative}) {
        for (const std::uint64_t packed_dim : {0, 1}) run(value, store, packed_dim, level);
      }
    }
  }
}

}  // namespace benches
