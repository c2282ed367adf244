#include "kernels/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/numbers.h"
#include "kernels/statistics_block.h"

namespace weightstore::kernels {
namespace {

constexpr std::size_t kBlock = 2048;  // numbers; even, for types with two numbers in a byte

// Calls look(numbers, count) with the numbers of `bytes`, block by block. F32 and F64 are looked at where they are.
template <class T, class Look>
void for_blocks(DType type, ConstBytes bytes, const Look& look) {
  const std::size_t total = bytes.size() * 8 / bits_of(type);
  const bool in_place = type == (sizeof(T) == sizeof(float) ? DType::kF32 : DType::kF64);
  alignas(64) std::array<T, kBlock> decoded;
  for (std::size_t done = 0; done < total; done += kBlock) {
    const std::size_t count = std::min(kBlock, total - done);
    const std::byte* at = bytes.data() + done * bits_of(type) / 8;
    // The loops load numbers at any address.
    if (in_place) {
      look(reinterpret_cast<const T*>(at), count);
    } else {
      decode_numbers(type, at, count, decoded.data());
      look(decoded.data(), count);
    }
  }
}

template <class Look>
void for_blocks(DType type, ConstBytes bytes, const Look& look) {
  if (number_kind(type) == NumberKind::kFloat) {
    for_blocks<float>(type, bytes, look);
  } else {
    for_blocks<double>(type, bytes, look);
  }
}

template <class T>
double number_at(const T* numbers, std::size_t i) {
  T number;
  std::memcpy(&number, reinterpret_cast<const std::byte*>(numbers) + i * sizeof number, sizeof number);
  return static_cast<double>(number);
}

// For a block that has NaNs or infinities, or doubles whose squares are beyond the largest double.
template <class T>
Moments careful_moments(const T* numbers, std::size_t count) {
  Moments moments;
  for (std::size_t i = 0; i < count; ++i) {
    const double number = number_at(numbers, i);
    moments.nans += std::isnan(number);
    moments.infinities += std::isinf(number);
    if (!std::isfinite(number)) continue;
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

template <class T>
Moments block_moments(const T* numbers, std::size_t count) {
  const double shift = number_at(numbers, 0);
  const BlockSums sums = sum_block(numbers, count, std::isfinite(shift) ? shift : 0);
  if (!std::isfinite(sums.sum) || !std::isfinite(sums.squares)) return careful_moments(numbers, count);
  Moments moments;
  moments.finite = count;
  moments.zeros = sums.zeros;
  moments.min = sums.min;
  moments.max = sums.max;
  const double distance = sums.sum / static_cast<double>(count);
  moments.mean = shift + distance;
  moments.squares = std::max(0.0, sums.squares - sums.sum * distance);
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

// Neighbouring numbers are counted in different tables: two increments of one counter would wait for each other.
void add_to_histogram(DType type, ConstBytes bytes, double low, double high, std::span<std::uint64_t> counts) {
  constexpr std::size_t kTables = 4;
  const std::size_t bins = counts.size();
  const std::size_t none = bins + 1;  // behind the bin that only `high` may fall into
  const std::size_t slots = none + 1;
  std::vector<std::uint64_t> tables(kTables * slots);
  const double width = high - low;
  const double scale = width > 0 ? static_cast<double>(bins) / width : 0;
  // Where the width or its inverse is beyond the largest number.
  const auto careful_bin = [&](double number) -> std::int32_t {
    if (!(number >= low && number <= high)) return static_cast<std::int32_t>(none);
    const double half_width = high / 2 - low / 2;
    const double share = half_width > 0 ? (number / 2 - low / 2) / half_width : 0;
    return static_cast<std::int32_t>(share * static_cast<double>(bins));
  };
  for_blocks(type, bytes, [&](const auto* numbers, std::size_t count) {
    std::array<std::int32_t, kBlock> found;
    if (std::isfinite(width) && std::isfinite(scale)) {
      find_bins(numbers, count, low, scale, static_cast<std::int32_t>(none), found.data());
    } else {
      for (std::size_t i = 0; i < count; ++i) found[i] = careful_bin(number_at(numbers, i));
    }
    const auto bin = [&](std::size_t i) { return static_cast<std::size_t>(found[i]); };
    std::size_t i = 0;
    for (; i + kTables <= count; i += kTables) {
      ++tables[bin(i)];
      ++tables[slots + bin(i + 1)];
      ++tables[2 * slots + bin(i + 2)];
      ++tables[3 * slots + bin(i + 3)];
    }
    for (; i < count; ++i) ++tables[bin(i)];
  });
  for (std::size_t t = 0; t < kTables; ++t) {
    for (std::size_t bin = 0; bin < none; ++bin) counts[std::min(bin, bins - 1)] += tables[t * slots + bin];
  }
}

}  // namespace weightstore::kernels
