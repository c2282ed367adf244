#pragma once

#include <cstddef>
#include <cstdint>

namespace weightstore::kernels {

// The numbers of a quantized tensor. Does not change, so any number of threads may use it.
class NumberDecoder {
 public:
  virtual ~NumberDecoder() = default;

  virtual std::uint64_t size() const = 0;  // in elements

  // How many elements are best decoded by one call, when several threads share the work.
  virtual std::uint64_t chunk() const { return 256u << 10; }

  // How many elements one call should decode at least, where there are as many.
  virtual std::uint64_t step() const { return 4096; }

  // Writes the elements [first, first + count) of `payload` to `out`. `stream` bypasses the caches, for a large output.
  virtual void decode(const std::byte* payload, std::uint64_t first, std::size_t count, float* out,
                      bool stream) const = 0;
};

}  // namespace weightstore::kernels
