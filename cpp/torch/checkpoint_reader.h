#pragma once

// torch.classes.store.CheckpointReader: tensors of a checkpoint for programs in TorchScript and libtorch.

#include <torch/custom_class.h>

#include <cstdint>
#include <string>
#include <vector>

#include "weightstore/loader.h"

namespace weightstore::torch_bridge {

// Immutable and thread-safe. Every failure is a weightstore::Error; torch turns it into a RuntimeError with the same
// text.
class CheckpointReader : public torch::CustomClassHolder {
 public:
  // A directory with a checkpoint, a SafeTensors or Burnpack file, or the index of a set of shards. Reads headers only.
  explicit CheckpointReader(const std::string& path);

  // Ascending.
  std::vector<std::string> list_tensor_names() const;

  std::vector<std::int64_t> tensor_shape(const std::string& name) const;

  // The c10::ScalarType as a number: what TorchScript takes a dtype to be.
  std::int64_t tensor_dtype(const std::string& name) const;

  // [begin, end, size, rows] of every slice of a table's column; nothing for a dense tensor.
  std::vector<std::vector<std::int64_t>> tensor_slices(const std::string& name) const;

  // Copies on the CPU, independent of the files.
  at::Tensor read_tensor(const std::string& name) const;
  at::Tensor read_rows(const std::string& name, std::int64_t begin, std::int64_t end) const;

  // The number of checksums that were compared.
  std::int64_t verify() const;

 private:
  weightstore::CheckpointReader reader_;
};

}  // namespace weightstore::torch_bridge
