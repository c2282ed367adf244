#pragma once

// Where the code and the scale of each element of a quantized tensor are, and the numbers that they make.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/number_decoder.h"
#include "kernels/quant_codes.h"
#include "kernels/scale_codes.h"
#include "weightstore/quant_scheme.h"

namespace weightstore::kernels {

// How a payload of Burn is laid out (docs/formats.md, "Quantized tensors").
//
// The tensor is seen as rows of the innermost dimension. In a row, codes have a constant distance, and so have the
// scales of neighbouring blocks. Where codes and blocks have no gaps the whole tensor is one row. A payload that is
// packed along the second innermost dimension has neighbouring rows in the same bytes; such rows are decoded together.
class QuantLayout final : public NumberDecoder {
 public:
  // Throws Error(kUnsupported) for a scheme that no release of Burn can dequantize, and Error(kInvalidArgument) when a
  // payload of `length` bytes does not fit the scheme and the shape.
  QuantLayout(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, std::uint64_t length);

  std::uint64_t size() const override { return size_; }
  std::uint64_t length() const { return length_; }  // of the payload

  std::uint64_t chunk() const override;
  std::uint64_t step() const override;

  void decode(const std::byte* payload, std::uint64_t first, std::size_t count, float* out, bool stream) const override;

 private:
  struct Axis {
    std::uint64_t size;
    std::uint64_t code_stride;  // bits
    std::uint64_t block;
    std::uint64_t scale_stride;
  };
  // Where a row begins.
  struct Row {
    std::uint64_t code;   // bit
    std::uint64_t scale;  // number
  };

  void set_flat(std::uint64_t run);
  void set_rows(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape);
  Row row(std::uint64_t number) const;
  void decode_row(const std::byte* payload, const Row& row, std::uint64_t first, std::size_t count, float* out,
                  bool stream) const;
  bool has_tiles() const;  // neighbouring rows are in the same bytes
  std::size_t rows_of_tile(std::uint64_t row, std::uint64_t most) const;
  void decode_tile(const std::byte* payload, std::uint64_t row, std::size_t rows, float* out, bool stream) const;
  void decode_lines(const std::byte* payload, std::uint64_t row, std::size_t rows, const std::byte* tile,
                    std::uint64_t first, std::size_t columns, float* out, bool stream) const;
  BlockScales scales(const std::byte* payload, const Row& row, std::size_t rows, std::uint64_t first, std::size_t count,
                     float* out, std::size_t stride) const;
  const std::uint8_t* codes(const std::byte* payload, const Row& row, std::uint64_t first, std::size_t count,
                            std::uint8_t* buffer) const;

  CodeTable table_;
  std::uint64_t size_ = 1;
  std::uint64_t length_;
  std::uint64_t scales_ = 0;  // where they begin
  QuantParam scale_type_ = QuantParam::kF32;
  std::optional<QuantParam> global_type_;  // of the scale at the end, by which all others are multiplied
  std::vector<Axis> outer_;                // the dimensions but the innermost one
  Axis inner_{};
};

}  // namespace weightstore::kernels
