#pragma once

// torch.classes.store.CheckpointReader: tensors of a file or shard set for programs in TorchScript and libtorch.

#include <torch/custom_class.h>

#include <cstdint>
#include <string>
#include <vector>

#include "weightstore/reader.h"

namespace weightstore::torch_bridge {

// Immutable and thread-safe, as Reader is. Every failure is a weightstore::Error; torch turns it into a RuntimeError
// with the same text.
class CheckpointReader : public torch::CustomClassHolder {
 public:
  // A SafeTensors or Burnpack file, or the index of a set of shards. Reads headers only.
  explicit CheckpointReader(const std::string& path) : reader_(Reader::open(path)) {}

  // Ascending.
  std::vector<std::string> list_tensor_names() const;

  std::vector<std::int64_t> tensor_shape(const std::string& name) const;

  // The c10::ScalarType as a number: what TorchScript takes a dtype to be.
  std::int64_t tensor_dtype(const std::string& name) const;

  // A copy on the CPU, independent of the file.
  at::Tensor read_tensor(const std::string& name) const;

 private:
  Reader reader_;
};

}  // namespace weightstore::torch_bridge
