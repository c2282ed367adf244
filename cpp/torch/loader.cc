#include "loader.h"

#include <ATen/ops/empty.h>

#include <memory>
#include <utility>
#include <vector>

#include "last_error.h"
#include "tensor_bridge.h"

namespace weightstore::torch_bridge {

LoaderHolder::LoaderHolder(std::string path, std::int64_t parallel, TableDict tables, TensorDict tensors)
    : path_(std::move(path)), parallel_(parallel), tables_(std::move(tables)), tensors_(std::move(tensors)) {
  guarded([&] {
    Staged staged;
    core(staged);
  });
}

void LoaderHolder::configure(const std::string& options) {
  guarded([&] { options_ = load_options_from_json(options); });
}

weightstore::Loader LoaderHolder::core(Staged& staged) const {
  std::vector<std::shared_ptr<weightstore::HashTable>> tables;
  for (const auto& entry : tables_) tables.push_back(entry.value()->core());
  std::vector<LoadTarget> targets;
  for (const auto& entry : tensors_) {
    at::Tensor tensor = entry.value().detach();
    if (!is_plain_memory(tensor)) {
      at::Tensor copy =
          at::empty(tensor.sizes(), tensor.options().device(at::kCPU).memory_format(at::MemoryFormat::Contiguous));
      staged.emplace_back(tensor, copy);
      tensor = copy;
    }
    const TensorInfo info = info_of(entry.key(), tensor);
    targets.push_back(
        {info.name,
         info.dtype,
         info.shape,
         {static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<std::size_t>(tensor.nbytes())}});
  }
  return {path_, parallel_, std::move(tables), std::move(targets)};
}

std::string LoaderHolder::default_load_info() const {
  return guarded([&] {
    Staged staged;
    return core(staged).default_load_info();
  });
}

void LoaderHolder::load(const std::string& info) {
  guarded([&] {
    Staged staged;
    weightstore::Loader loader = core(staged);
    for (auto& [target, copy] : staged) copy.copy_(target);  // what is not loaded stays as it is
    LoadOptions options = options_;
    options.progress = progress_.begin();
    loader.configure(std::move(options));
    loader.load(info);
    for (auto& [target, copy] : staged) target.copy_(copy);
  });
}

}  // namespace weightstore::torch_bridge
