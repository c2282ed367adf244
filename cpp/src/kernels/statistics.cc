#include "kernels/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/number_blocks.h"
#include "kernels/numbers.h"
#include "kernels/statistics_block.h"

namespace weightstore::kernels {
namespace {

template <class T>
double number_at(const T* numbers, std::size_t i) {
  T number;
  std::memcpy(&number, reinterpret_cast<const std::byte*>(numbers) + i * sizeof number, sizeof number);
  return static_cast<double>(number);
}

// For numbers whose squares are beyond the largest double.
template <class T>
Moments careful_moments(const T* numbers, std::size_t count) {
  Moments moments;
  for (std::size_t i = 0; i < count; ++i) {
    const double number = number_at(numbers, i);
    ++moments.finite;
    moments.zeros += number == 0;
    moments.min = std::min(moments.min, number);
    moments.max = std::max(moments.max, number);
    const double count_so_far = static_cast<double>(moments.finite);
    const double before = moments.mean;
    // Halves, because the difference of two numbers may be beyond the largest one.
    moments.mean += 2 * ((number / 2 - before / 2) / count_so_far);
    moments.squares += (number - before) * (number - moments.mean);
  }
  return moments;
}

// For sums that are finite.
template <class T>
Moments moments_from(const BlockSums& sums, const T* numbers, std::size_t count) {
  Moments moments;
  moments.finite = count;
  moments.zeros = sums.zeros;
  moments.min = sums.min;
  moments.max = sums.max;
  if (sums.min == sums.max) {
    moments.mean = sums.min;
    return moments;
  }
  const auto size = static_cast<double>(count);
  moments.mean = sums.sum / size;
  moments.squares = sums.squares - sums.sum * moments.mean;
  // What is left of a difference of two numbers that are nearly the same has few correct digits.
  constexpr double kEnough = 1.0 / 64;
  if (!(moments.squares > sums.squares * kEnough)) {
    const double shift = moments.mean;
    const DistanceSums distances = sum_distances(numbers, count, shift);
    const double distance = distances.sum / size;
    moments.mean = shift + distance;
    moments.squares = std::max(0.0, distances.squares - distances.sum * distance);
  }
  return moments;
}

template <class T>
Moments finite_moments(const BlockSums& sums, const T* numbers, std::size_t count) {
  if (std::isfinite(sums.sum) && std::isfinite(sums.squares)) return moments_from(sums, numbers, count);
  return careful_moments(numbers, count);
}

template <class T>
Moments block_moments(const T* numbers, std::size_t count) {
  const BlockSums sums = sum_block(numbers, count);
  if (std::isfinite(sums.sum)) return finite_moments(sums, numbers, count);
  std::array<T, kBlockNumbers> finite;
  std::size_t kept = 0;
  std::uint64_t nans = 0;
  for (std::size_t i = 0; i < count; ++i) {  // without branches
    T number;
    std::memcpy(&number, reinterpret_cast<const std::byte*>(numbers) + i * sizeof number, sizeof number);
    finite[kept] = number;
    nans += std::isnan(number);
    kept += std::isfinite(number);
  }
  Moments moments;
  if (kept != 0) moments = finite_moments(sum_block(finite.data(), kept), finite.data(), kept);
  moments.nans = nans;
  moments.infinities = count - kept - nans;
  return moments;
}

template <class Integer>
void add_extremes(ConstBytes bytes, std::uint64_t flip, Moments& moments) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(Integer)) {
    std::uint64_t bits;
    std::memcpy(&bits, bytes.data() + i, sizeof bits);
    moments.min_integer = std::min(moments.min_integer, bits ^ flip);
    moments.max_integer = std::max(moments.max_integer, bits ^ flip);
  }
}

}  // namespace

// Chan's formula.
void Moments::add(const Moments& other) {
  nans += other.nans;
  infinities += other.infinities;
  zeros += other.zeros;
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  min_integer = std::min(min_integer, other.min_integer);
  max_integer = std::max(max_integer, other.max_integer);
  if (other.finite == 0) return;
  if (finite == 0) {  // below, 0 times a distance that is too large would be NaN
    finite = other.finite;
    mean = other.mean;
    squares = other.squares;
    return;
  }
  const double mine = static_cast<double>(finite);
  const double theirs = static_cast<double>(other.finite);
  const double share = theirs / (mine + theirs);
  const double distance = other.mean - mean;
  mean = std::isfinite(distance) ? mean + distance * share : mean * (1 - share) + other.mean * share;
  squares += other.squares + distance * distance * mine * share;
  finite += other.finite;
}

Moments moments_of(DType type, ConstBytes bytes) {
  Moments all;
  for_blocks(type, bytes, [&](const auto* numbers, std::size_t count) { all.add(block_moments(numbers, count)); });
  if (number_kind(type) == NumberKind::kSigned) add_extremes<std::int64_t>(bytes, kSignBit, all);
  if (number_kind(type) == NumberKind::kUnsigned) add_extremes<std::uint64_t>(bytes, 0, all);
  return all;
}

}  // namespace weightstore::kernels
