#pragma once

// torch.classes.store.Loader.

#include <torch/custom_class.h>

#include <cstdint>
#include <string>

#include "saver.h"
#include "weightstore/loader.h"

namespace weightstore::torch_bridge {

// Thread-compatible. Tensors may be of any layout and on any device; those that are not row-major on the CPU are loaded
// by way of a copy.
class LoaderHolder : public torch::CustomClassHolder {
 public:
  LoaderHolder(std::string path, std::int64_t parallel, TableDict tables, TensorDict tensors);

  // JSON, as load_options_from_json() takes it.
  void configure(const std::string& options);
  std::string default_load_info() const;
  void load(const std::string& info) const;

 private:
  // A loader over this memory, which the copies among `staged` own.
  weightstore::Loader core(std::vector<std::pair<at::Tensor, at::Tensor>>& staged) const;

  const std::string path_;
  const std::int64_t parallel_;
  const TableDict tables_;
  const TensorDict tensors_;
  LoadOptions options_;
};

}  // namespace weightstore::torch_bridge
