#pragma once

// The parts of kernels::quantize(), for callers that work on several threads.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weightstore/byte_source.h"
#include "weightstore/quant_scheme.h"

namespace weightstore::kernels {

// Throws what kernels::quantize() throws, except for numbers that are not finite.
void check_quantize(std::uint64_t in_bytes, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape,
                    std::uint64_t out_bytes);

// Quantizes one tensor: find_peaks() for all of its elements, then make_scales(), then encode() for all of them. Or
// quantize_groups() for all of them, which goes over the numbers once. Several threads may call find_peaks() at the
// same time, and so may they encode() or quantize_groups(), each for other elements. The result is the same in all
// cases.
class Quantizer {
 public:
  // `in` and `out` are those of kernels::quantize(), and outlive the quantizer. Throws as check_quantize() does.
  Quantizer(ConstBytes in, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, MutableBytes out);

  std::uint64_t size() const { return size_; }  // in elements
  // Where the elements may be divided: at multiples of this many.
  std::uint64_t granule() const { return granule_; }

  void find_peaks(std::uint64_t begin, std::uint64_t end);
  // Throws Error(kInvalidArgument) when a number is not finite.
  void make_scales();
  void encode(std::uint64_t begin, std::uint64_t end) const;

  // How many neighbours have whole blocks to themselves.
  std::uint64_t group() const { return group_; }
  // All three steps. Begins and ends at multiples of group() and granule().
  void quantize_groups(std::uint64_t begin, std::uint64_t end);

 private:
  struct Axis {
    std::uint64_t size;
    std::uint64_t block;
    std::uint64_t stride;  // of blocks
  };

  void make_scales(std::uint64_t first_block, std::uint64_t last_block);
  void set_blocks(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape);
  template <class Work>
  void for_runs(std::uint64_t begin, std::uint64_t end, const Work& work) const;

  const float* const in_;
  const QuantScheme scheme_;
  std::vector<Axis> axes_;  // the innermost one first
  std::uint64_t size_ = 1;
  std::uint64_t granule_ = 1;
  std::uint64_t group_ = 1;
  std::uint64_t group_blocks_ = 1;  // blocks of a group
  // Codes are stored in lines. Each begins a word, and ends with zeros up to `line_bytes_`.
  unsigned bits_;
  std::uint64_t line_;
  std::uint64_t line_bytes_;
  std::byte* const codes_;
  MutableBytes scales_;
  std::vector<std::uint32_t> peaks_;  // of each block: the bits of the largest magnitude
  std::vector<float> divisors_;
};

}  // namespace weightstore::kernels
