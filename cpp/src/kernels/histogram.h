#pragma once

// Counts numbers in bins, on the calling thread.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"

namespace weightstore::kernels {

// Bins of equal width from `low` to `high`. A number on the border of two bins counts for the upper one, `high` for the
// last one. If low == high, or they are the closest numbers that there are, everything is in the first bin.
class Histogram {
 public:
  // `type` is a number_type() whose number_kind() is not kNone. `bins` is at least 1 and less than 2^24.
  Histogram(DType type, double low, double high, std::size_t bins);

  // Numbers that are not finite are not counted; the others lie in [low, high].
  void add(ConstBytes bytes);

  // How many numbers are in each bin.
  const std::vector<std::uint64_t>& counts();

 private:
  template <class T>
  void add_block(const T* numbers, std::size_t count);
  void count_found(const std::int32_t* found, std::size_t count);
  void count_pairs(const std::uint32_t* pairs, std::size_t count);
  void empty_tables();

  DType type_;
  double low_;
  double high_;
  std::size_t bins_;
  double scale_;       // bins a unit
  bool is_careful_;    // the width or its inverse is beyond the largest number
  std::size_t slots_;  // the bins, one that only `high` may fall into, and one for what is not counted
  bool counts_pairs_;  // a table has a counter for each pair of slots: two numbers take one increment
  std::size_t table_;  // how many counters a table has
  // Neighbours are counted in different tables: two increments of one counter would wait for each other.
  std::vector<std::uint32_t> tables_;
  std::uint32_t in_tables_ = 0;  // numbers that were counted there
  std::vector<std::uint64_t> counts_;
};

}  // namespace weightstore::kernels
