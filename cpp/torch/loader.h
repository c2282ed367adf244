#pragma once

// torch.classes.store.Loader.

#include <torch/custom_class.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "call_progress.h"
#include "part_place.h"
#include "staged_targets.h"
#include "table_dict.h"
#include "weightstore/loader.h"

namespace weightstore::torch_bridge {

// Thread-compatible, except for progress() and cancel(), which are for other threads while load() runs. Tensors may
// have any strides that give each element its own memory, and be on any device that has some; those that are not
// row-major on the CPU are loaded by way of a copy, and only change when the load succeeds. Tensors may share memory as
// put_back() says. To autograd a load is an in-place change of all of them.
class LoaderHolder : public torch::CustomClassHolder {
 public:
  LoaderHolder(std::string path, std::int64_t parallel, TableDict tables, TensorDict tensors);

  // JSON, as load_options_from_json() takes it.
  void configure(const std::string& options);
  // The tensors of these names are parts of larger tensors: by name the shape of the whole tensor, and where the part
  // begins in it, as torch counts. The load reads only the part.
  void set_parts(ShapeDict wholes, ShapeDict begins);
  std::string default_load_info() const;
  void load(const std::string& info);

  // Bytes read, bytes in all, and what is being read, of the load that is running.
  std::tuple<std::int64_t, std::int64_t, std::string> progress() const { return progress_.get(); }
  void cancel() { progress_.cancel(); }

 private:
  struct Targets {
    std::vector<StagedTarget> staged;
    std::vector<DirectTarget> direct;
  };

  // A loader into the tensors' memory, or into that of `targets.staged`, which has nothing in it yet.
  weightstore::Loader core(Targets& targets) const;

  const std::string path_;
  const std::int64_t parallel_;
  const TableDict tables_;
  const TensorDict tensors_;
  ShapeDict wholes_;
  ShapeDict begins_;
  LoadOptions options_;
  CallProgress progress_;
};

}  // namespace weightstore::torch_bridge
