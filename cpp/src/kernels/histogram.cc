#include "kernels/histogram.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/histogram_bins.h"
#include "kernels/number_blocks.h"

namespace weightstore::kernels {
namespace {

constexpr std::size_t kTables = 4;
constexpr std::size_t kMostPairedBins = 34;        // tables of pairs fit the innermost cache
constexpr std::uint32_t kMostInTables = 1u << 31;  // the counters of tables have 32 bits

double scale_of(double low, double high, std::size_t bins) {
  return high > low ? static_cast<double>(bins) / (high - low) : 0;
}

}  // namespace

Histogram::Histogram(DType type, double low, double high, std::size_t bins)
    : type_(type),
      low_(low),
      high_(high),
      bins_(bins),
      scale_(scale_of(low, high, bins)),
      is_careful_(!std::isfinite(high - low) || !std::isfinite(scale_)),
      slots_(bins + 2),
      counts_pairs_(bins <= kMostPairedBins && !is_careful_ && number_kind(type) == NumberKind::kFloat),
      table_(counts_pairs_ ? slots_ * slots_ : slots_),
      tables_(kTables * table_),
      counts_(bins) {}

void Histogram::add(ConstBytes bytes) {
  for_blocks(type_, bytes, [this](const auto* numbers, std::size_t count) { add_block(numbers, count); });
}

template <class T>
void Histogram::add_block(const T* numbers, std::size_t count) {
  const auto none = static_cast<std::int32_t>(slots_ - 1);
  if (in_tables_ > kMostInTables) empty_tables();
  in_tables_ += static_cast<std::uint32_t>(count);
  alignas(64) std::array<std::int32_t, kBlockNumbers> found;
  if (is_careful_) {
    for (std::size_t i = 0; i < count; ++i) {
      T number;
      std::memcpy(&number, reinterpret_cast<const std::byte*>(numbers) + i * sizeof number, sizeof number);
      const auto wide = static_cast<double>(number);
      const double half_width = high_ / 2 - low_ / 2;
      const double share = half_width > 0 ? (wide / 2 - low_ / 2) / half_width : 0;
      found[i] = std::isfinite(wide) ? static_cast<std::int32_t>(share * static_cast<double>(bins_)) : none;
    }
    return count_found(found.data(), count);
  }
  std::size_t done = 0;
  if constexpr (std::is_same_v<T, float>) {
    if (counts_pairs_) {
      alignas(64) std::array<std::uint32_t, kBlockNumbers / 2> pairs;
      done = find_pairs(numbers, count, low_, scale_, none, pairs.data());
      count_pairs(pairs.data(), done / 2);
    }
  }
  const auto* rest =
      reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(numbers) + done * sizeof(T));  // at any address
  find_bins(rest, count - done, low_, scale_, none, found.data());
  count_found(found.data(), count - done);
}

void Histogram::count_found(const std::int32_t* found, std::size_t count) {
  if (counts_pairs_) {  // with no other number
    for (std::size_t i = 0; i < count; ++i) ++tables_[static_cast<std::size_t>(found[i]) * slots_ + slots_ - 1];
    return;
  }
  std::uint32_t* const tables = tables_.data();
  const auto bin = [&](std::size_t i) { return static_cast<std::size_t>(found[i]); };
  std::size_t i = 0;
  for (; i + kTables <= count; i += kTables) {
#pragma GCC unroll 4
    for (std::size_t t = 0; t < kTables; ++t) ++tables[t * slots_ + bin(i + t)];
  }
  for (; i < count; ++i) ++tables[bin(i)];
}

// `count` is a multiple of kTables.
void Histogram::count_pairs(const std::uint32_t* pairs, std::size_t count) {
  std::uint32_t* const tables = tables_.data();
  for (std::size_t i = 0; i < count; i += kTables) {
#pragma GCC unroll 4
    for (std::size_t t = 0; t < kTables; ++t) ++tables[t * table_ + pairs[i + t]];
  }
}

void Histogram::empty_tables() {
  const std::size_t none = slots_ - 1;
  const auto add = [&](std::size_t slot, std::uint32_t count) {
    if (slot != none) counts_[std::min(slot, bins_ - 1)] += count;
  };
  for (std::size_t first = 0; first < tables_.size(); first += slots_) {
    // A table of pairs has a row for each slot of the first number.
    const std::size_t row = counts_pairs_ ? first / slots_ % slots_ : none;
    for (std::size_t slot = 0; slot < slots_; ++slot) {
      const std::uint32_t count = tables_[first + slot];
      add(row, count);
      add(slot, count);
    }
  }
  std::fill(tables_.begin(), tables_.end(), 0);
  in_tables_ = 0;
}

const std::vector<std::uint64_t>& Histogram::counts() {
  empty_tables();
  return counts_;
}

}  // namespace weightstore::kernels
