#pragma once

// The contents of a file that is about to be written.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightstore/byte_producer.h"
#include "weightstore/tensor.h"
#include "weightstore/typed_metadata.h"

namespace weightstore {

// A tensor to be written.
struct NewTensor {
  std::string name{};
  DType dtype = DType::kU8;
  Shape shape{};
  std::shared_ptr<ByteProducer> bytes{};
  std::optional<std::uint64_t> param_id{};     // Burnpack only
  std::shared_ptr<const QuantScheme> quant{};  // for kQFloat
  // The checksum in the file that the bytes come from, if there is one. It is written to the metadata unchanged. If the
  // writer computes checksums itself and gets another result, it throws Error(kCorrupt).
  std::optional<std::uint32_t> crc32c{};
};

// Collects tensors, metadata and scalars that are then planned and written. Used by one thread at a time.
class FileContents {
 public:
  void add(NewTensor tensor);  // throws Error(kInvalidArgument) when it has no producer
  // The caller keeps the bytes alive and unchanged until the file is written.
  void add(std::string name, DType dtype, Shape shape, ConstBytes bytes);

  void set_metadata(std::string_view key, std::string_view value);  // replaces an earlier value
  void set_metadata(const TextMap& metadata);                       // replaces all; present even when empty
  // For formats with typed metadata (GGUF): entries beside those of set_metadata(), which they replace if the keys are
  // the same. Null for none.
  void set_typed_metadata(std::shared_ptr<const TypedMetadata> metadata) { typed_metadata_ = std::move(metadata); }
  void set_scalar(std::string_view name, Scalar value);  // Burnpack only; replaces an earlier value
  void set_scalars(ScalarMap scalars);                   // replaces all

  const std::vector<NewTensor>& tensors() const { return tensors_; }
  const std::optional<TextMap>& metadata() const { return metadata_; }
  const std::shared_ptr<const TypedMetadata>& typed_metadata() const { return typed_metadata_; }
  const ScalarMap& scalars() const { return scalars_; }

 private:
  std::vector<NewTensor> tensors_;
  std::optional<TextMap> metadata_;
  std::shared_ptr<const TypedMetadata> typed_metadata_;
  ScalarMap scalars_;
};

}  // namespace weightstore
