// Casts and transposes of memory that is there already, beside a plain copy of as many bytes.

#include <cstring>
#include <utility>

#include "benches.h"
#include "weightstore/transform.h"

namespace benches {

using namespace weightstore;

namespace {

constexpr std::size_t kNumbers = std::size_t{32} << 20;

std::string title(DType from, DType to) { return std::string(name_of(from)) + " to " + std::string(name_of(to)); }

}  // namespace

void bench_transform(ankerl::nanobench::Bench& bench) {
  const std::vector<std::byte> in(kNumbers * 8, std::byte{0x3c});
  std::vector<std::byte> out(kNumbers * 8, std::byte{1});

  bench.title("32 Mi numbers, bytes in and out").unit("byte").epochs(5);
  bench.batch(8 * kNumbers).run("memcpy of F32, one thread", [&] { std::memcpy(out.data(), in.data(), 4 * kNumbers); });
  constexpr std::pair<DType, DType> kCasts[] = {
      {DType::kF32, DType::kF16},  {DType::kF32, DType::kBF16}, {DType::kF16, DType::kF32}, {DType::kBF16, DType::kF32},
      {DType::kF16, DType::kBF16}, {DType::kBF16, DType::kF16}, {DType::kF64, DType::kF32}, {DType::kF32, DType::kF64},
  };
  for (const auto& [from, to] : kCasts) {
    const ConstBytes numbers = ConstBytes(in).first(kNumbers * bits_of(from) / 8);
    const MutableBytes result = MutableBytes(out).first(kNumbers * bits_of(to) / 8);
    bench.batch(numbers.size() + result.size());
    bench.run(title(from, to), [&] { cast(numbers, from, to, result); });
    bench.run(title(from, to) + ", one thread", [&] { cast(numbers, from, to, result, 1); });
  }
  for (const std::size_t item : {1, 2, 4, 8}) {
    const std::size_t size = kNumbers * item;
    bench.batch(2 * size).run("transpose of 4096 x 8192 elements of " + std::to_string(item), [&] {
      transpose(ConstBytes(in).first(size), item, 4096, 8192, MutableBytes(out).first(size));
    });
  }
}

}  // namespace benches
