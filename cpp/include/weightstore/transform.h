#pragma once

// Transposes tensors, casts them between floating-point types, and quantizes and dequantizes them, while they are read
// or written. There are functions from memory to memory on several threads, and producers for writing that convert the
// bytes of another producer.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "weightstore/byte_producer.h"
#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"
#include "weightstore/kernels.h"

namespace weightstore {

// kernels::cast() and kernels::transpose() on up to `threads` threads; 0: one for each processor, 2 to 8. Small arrays
// are converted on the calling thread.
void cast(ConstBytes in, DType from, DType to, MutableBytes out, unsigned threads = 0);
void transpose(ConstBytes in, std::size_t item_bytes, std::uint64_t rows, std::uint64_t columns, MutableBytes out,
               unsigned threads = 0);

// kernels::dequantize() and kernels::quantize() on up to `threads` threads. The result is the same for any number.
void dequantize(ConstBytes payload, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, DType to,
                std::uint64_t first, MutableBytes out, unsigned threads = 0);
void dequantize(ConstBytes payload, DType from, DType to, std::uint64_t first, MutableBytes out, unsigned threads = 0);
void quantize(ConstBytes in, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, MutableBytes out,
              unsigned threads = 0);

// The numbers of the quantized tensor in `bytes`, as `to`. Each fill() makes the numbers that it returns. If `bytes` is
// not resident, the first fill() reads the whole payload into memory. Throws as kernels::dequantize() does.
std::shared_ptr<ByteProducer> dequantized_bytes(std::shared_ptr<ByteProducer> bytes, const QuantScheme& scheme,
                                                const std::vector<std::uint64_t>& shape, DType to);

// The same for blocks of a type of GGUF. Each fill() reads only the blocks that it needs.
std::shared_ptr<ByteProducer> dequantized_bytes(std::shared_ptr<ByteProducer> bytes, DType from, DType to);

// The payload of the F32 numbers in `bytes`, as kernels::quantize() makes it. The first fill() reads all numbers into
// memory, if they are not resident, and makes the whole payload. Throws as kernels::quantize() does.
std::shared_ptr<ByteProducer> quantized_bytes(std::shared_ptr<ByteProducer> bytes, const QuantScheme& scheme,
                                              std::vector<std::uint64_t> shape);

// The F32 numbers in `bytes` as blocks of Q8_0 or Q4_0, as kernels::quantize() makes them. Each fill() makes the blocks
// that it returns. Throws as kernels::quantize() does.
std::shared_ptr<ByteProducer> quantized_bytes(std::shared_ptr<ByteProducer> bytes, DType to);

// The numbers of `bytes` as another type. Each fill() converts the numbers that it returns. Throws as cast_size() does.
std::shared_ptr<ByteProducer> cast_bytes(std::shared_ptr<ByteProducer> bytes, DType from, DType to);

// The transpose of the matrix in `bytes`. If `bytes` is resident, the producer uses the matrix where it is. Otherwise
// the first fill() reads the whole matrix into memory, because the first row of the transpose needs the last row of the
// matrix. In addition the producer keeps a band of columns in memory: at most 32 MiB, or one column if a column is
// larger. Throws as kernels::transpose() does.
std::shared_ptr<ByteProducer> transposed_bytes(std::shared_ptr<ByteProducer> bytes, std::size_t item_bytes,
                                               std::uint64_t rows, std::uint64_t columns);

}  // namespace weightstore
