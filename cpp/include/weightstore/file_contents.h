#pragma once

// What shall be in a file.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/byte_producer.h"
#include "weightstore/tensor.h"

namespace weightstore {

// A tensor to be written.
struct NewTensor {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  std::shared_ptr<ByteProducer> bytes;
  std::optional<std::uint64_t> param_id;     // Burnpack only
  std::shared_ptr<const QuantScheme> quant;  // for kQFloat
  // What the file that the bytes come from says they are. Goes into the metadata as it is; where the writer computes
  // checksums itself, another result is Error(kCorrupt).
  std::optional<std::uint32_t> crc32c{};
};

// Tensors, metadata and scalars, collected to be planned and written. Thread-compatible.
class FileContents {
 public:
  void add(NewTensor tensor);  // throws kInvalidArgument for one without a producer
  // Bytes that the caller keeps alive and unchanged until everything is written.
  void add(std::string name, DType dtype, Shape shape, ConstBytes bytes);

  void set_metadata(std::string_view key, std::string_view value);  // replaces an earlier value
  void set_metadata(const TextMap& metadata);                       // replaces all; present even when empty
  void set_scalar(std::string_view name, Scalar value);             // Burnpack only; replaces an earlier value
  void set_scalars(ScalarMap scalars);                              // replaces all

  const std::vector<NewTensor>& tensors() const { return tensors_; }
  const std::optional<TextMap>& metadata() const { return metadata_; }
  const ScalarMap& scalars() const { return scalars_; }

 private:
  std::vector<NewTensor> tensors_;
  std::optional<TextMap> metadata_;
  ScalarMap scalars_;
};

}  // namespace weightstore
