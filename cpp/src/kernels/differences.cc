#include "kernels/differences.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/numbers.h"

namespace weightstore::kernels {
namespace {

constexpr std::size_t kBlock = 1024;  // numbers; even, for types with two numbers in a byte

// The loop of compare_doubles(), for a compiler to vectorise: sums that are not finite tell about NaNs and infinities.
struct BlockDifferences {
  double sum;
  double absolute;
  double relative;
  std::uint64_t differing;
};

[[gnu::always_inline]] inline BlockDifferences compare_lanes(const double* a, const double* b, std::size_t count) {
  constexpr std::size_t kLanes = 8;
  double sums[kLanes] = {}, absolute[kLanes] = {}, relative[kLanes] = {}, differing[kLanes] = {};
  for (std::size_t i = 0; i < count; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      const double x = a[i + j], y = b[i + j];
      const double distance = std::fabs(x - y);
      const double size = std::max(std::fabs(x), std::fabs(y));
      const double share = distance / (distance == 0 ? 1 : size);
      sums[j] += distance;
      absolute[j] = distance > absolute[j] ? distance : absolute[j];
      relative[j] = share > relative[j] ? share : relative[j];
      differing[j] += distance != 0 ? 1.0 : 0.0;
    }
  }
  BlockDifferences all{};
  double counted = 0;
  for (std::size_t j = 0; j < kLanes; ++j) {
    all.sum += sums[j];
    all.absolute = std::max(all.absolute, absolute[j]);
    all.relative = std::max(all.relative, relative[j]);
    counted += differing[j];
  }
  all.differing = static_cast<std::uint64_t>(counted);
  return all;
}

BlockDifferences compare_portable(const double* a, const double* b, std::size_t count) {
  return compare_lanes(a, b, count);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) BlockDifferences compare_avx2(const double* a, const double* b, std::size_t count) {
  return compare_lanes(a, b, count);
}
bool has_avx2() {
  static const bool found = __builtin_cpu_supports("avx2");
  return found;
}
#else
BlockDifferences compare_avx2(const double* a, const double* b, std::size_t count) {
  return compare_lanes(a, b, count);
}
bool has_avx2() { return false; }
#endif

// One pair, by all rules.
void compare_pair(double a, double b, Differences& found) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return;
  ++found.differing;
  if (!std::isfinite(a) || !std::isfinite(b)) {
    ++found.unmeasured;
    return;
  }
  const double size = std::max(std::fabs(a), std::fabs(b));
  // Halves, because the distance may be beyond the largest number.
  found.max_absolute = std::max(found.max_absolute, std::fabs(a - b));
  found.max_relative = std::max(found.max_relative, 2 * (std::fabs(a / 2 - b / 2) / size));
}

// The arrays have zeros behind `count`, up to the next multiple of 8.
void compare_doubles(const double* a, const double* b, std::size_t count, Differences& found) {
  const std::size_t padded = (count + 7) / 8 * 8;
  const BlockDifferences block = has_avx2() ? compare_avx2(a, b, padded) : compare_portable(a, b, padded);
  if (!std::isfinite(block.sum)) {
    for (std::size_t i = 0; i < count; ++i) compare_pair(a[i], b[i], found);
    return;
  }
  found.differing += block.differing;
  found.max_absolute = std::max(found.max_absolute, block.absolute);
  found.max_relative = std::max(found.max_relative, block.relative);
}

// Integers of 64 bits, which double does not hold: differences are exact, and distances are rounded once.
template <class A, class B>
void compare_integers(const std::byte* a, const std::byte* b, std::size_t count, Differences& found) {
  for (std::size_t i = 0; i < count; ++i) {
    A x;
    B y;
    std::memcpy(&x, a + i * sizeof x, sizeof x);
    std::memcpy(&y, b + i * sizeof y, sizeof y);
    if (std::cmp_equal(x, y)) continue;
    ++found.differing;
    __extension__ using Wide = __int128;  // the distance of I64 and U64 may have 65 bits
    const Wide difference = static_cast<Wide>(x) - static_cast<Wide>(y);
    const auto distance = static_cast<double>(difference < 0 ? -difference : difference);
    const double size = std::max(std::fabs(static_cast<double>(x)), std::fabs(static_cast<double>(y)));
    found.max_absolute = std::max(found.max_absolute, distance);
    found.max_relative = std::max(found.max_relative, distance / size);
  }
}

bool is_wide(DType type) { return type == DType::kI64 || type == DType::kU64; }

void compare_wide(DType a_type, const std::byte* a, DType b_type, const std::byte* b, std::size_t count,
                  Differences& found) {
  const bool a_signed = a_type == DType::kI64, b_signed = b_type == DType::kI64;
  if (a_signed && b_signed) return compare_integers<std::int64_t, std::int64_t>(a, b, count, found);
  if (a_signed) return compare_integers<std::int64_t, std::uint64_t>(a, b, count, found);
  if (b_signed) return compare_integers<std::uint64_t, std::int64_t>(a, b, count, found);
  return compare_integers<std::uint64_t, std::uint64_t>(a, b, count, found);
}

}  // namespace

void Differences::add(const Differences& other) {
  count += other.count;
  differing += other.differing;
  unmeasured += other.unmeasured;
  max_absolute = std::max(max_absolute, other.max_absolute);
  max_relative = std::max(max_relative, other.max_relative);
}

Differences compare_numbers(DType a_type, ConstBytes a, DType b_type, ConstBytes b) {
  Differences found;
  found.count = a.size() * 8 / bits_of(a_type);
  alignas(64) std::array<double, kBlock> left, right;
  for (std::size_t done = 0; done < found.count; done += kBlock) {
    const std::size_t count = std::min<std::size_t>(kBlock, found.count - done);
    const std::byte* at_a = a.data() + done * bits_of(a_type) / 8;
    const std::byte* at_b = b.data() + done * bits_of(b_type) / 8;
    if (a_type == b_type && std::memcmp(at_a, at_b, (count * bits_of(a_type) + 7) / 8) == 0) continue;
    if (is_wide(a_type) && is_wide(b_type)) {
      compare_wide(a_type, at_a, b_type, at_b, count, found);
      continue;
    }
    decode_numbers(a_type, at_a, count, left.data());
    decode_numbers(b_type, at_b, count, right.data());
    std::fill(left.begin() + static_cast<std::ptrdiff_t>(count), left.end(), 0.0);
    std::fill(right.begin() + static_cast<std::ptrdiff_t>(count), right.end(), 0.0);
    compare_doubles(left.data(), right.data(), count, found);
  }
  return found;
}

}  // namespace weightstore::kernels
