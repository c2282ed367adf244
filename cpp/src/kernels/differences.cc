#include "kernels/differences.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/differences_block.h"
#include "kernels/numbers.h"

namespace weightstore::kernels {
namespace {

constexpr std::size_t kBlock = 1024;  // numbers; even, for types with two numbers in a byte

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

template <class T>
void compare_numbers(const T* a, const T* b, std::size_t count, Differences& found) {
  const BlockDifferences block = compare_block(a, b, count, found.max_relative);
  if (!block.is_finite) {
    for (std::size_t i = 0; i < count; ++i) {
      T x, y;
      std::memcpy(&x, reinterpret_cast<const std::byte*>(a) + i * sizeof x, sizeof x);
      std::memcpy(&y, reinterpret_cast<const std::byte*>(b) + i * sizeof y, sizeof y);
      compare_pair(static_cast<double>(x), static_cast<double>(y), found);
    }
    return;
  }
  found.differing += block.differing;
  found.max_absolute = std::max(found.max_absolute, block.absolute);
  found.max_relative = std::max(found.max_relative, block.relative);
}

// The numbers of one block of a tensor as T; those that are T already stay where they are, at any address.
template <class T>
class Decoded {
 public:
  const T* get(DType type, const std::byte* at, std::size_t count) {
    if (type == (sizeof(T) == sizeof(float) ? DType::kF32 : DType::kF64)) return reinterpret_cast<const T*>(at);
    decode_numbers(type, at, count, numbers_.data());
    return numbers_.data();
  }

 private:
  alignas(64) std::array<T, kBlock> numbers_;
};

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

void compare_numbers(DType a_type, ConstBytes a, DType b_type, ConstBytes b, Differences& found) {
  const std::size_t total = a.size() * 8 / bits_of(a_type);
  found.count += total;
  const bool floats = number_kind(a_type) == NumberKind::kFloat && number_kind(b_type) == NumberKind::kFloat;
  Decoded<float> left_floats, right_floats;
  Decoded<double> left, right;
  for (std::size_t done = 0; done < total; done += kBlock) {
    const std::size_t count = std::min(kBlock, total - done);
    const std::byte* at_a = a.data() + done * bits_of(a_type) / 8;
    const std::byte* at_b = b.data() + done * bits_of(b_type) / 8;
    if (a_type == b_type && std::memcmp(at_a, at_b, (count * bits_of(a_type) + 7) / 8) == 0) continue;
    if (is_wide(a_type) && is_wide(b_type)) {
      compare_wide(a_type, at_a, b_type, at_b, count, found);
    } else if (floats) {
      compare_numbers(left_floats.get(a_type, at_a, count), right_floats.get(b_type, at_b, count), count, found);
    } else {
      compare_numbers(left.get(a_type, at_a, count), right.get(b_type, at_b, count), count, found);
    }
  }
}

}  // namespace weightstore::kernels
