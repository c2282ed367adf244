#include "loader.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <utility>
#include <vector>

#include "element_memory.h"
#include "last_error.h"
#include "tensor_bridge.h"
#include "weightstore/error.h"

namespace weightstore::torch_bridge {
namespace {

// Throws for what has no memory, or is expanded.
void check_target(const std::string& name, const at::Tensor& tensor) {
  require_memory(name, tensor);
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    throw Error(ErrorCode::kInvalidArgument,
                "is expanded: several of its elements are one in memory; load into a clone() of it")
        .in_tensor(name);
  }
}

// Tells autograd, when it goes, that tensors whose memory the loader writes to were changed. Also when the load failed:
// what was loaded by then stays. The others are changed by copy_(), which tells by itself.
struct ChangeNotice {
  const TensorDict& tensors;

  ~ChangeNotice() {
    for (const auto& entry : tensors) {
      const at::Tensor tensor = entry.value();
      if (is_plain_memory(tensor) && !tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
};

}  // namespace

LoaderHolder::LoaderHolder(std::string path, std::int64_t parallel, TableDict tables, TensorDict tensors)
    : path_(std::move(path)), parallel_(parallel), tables_(std::move(tables)), tensors_(std::move(tensors)) {
  guarded([&] {
    Targets targets;
    core(targets);
  });
}

void LoaderHolder::configure(const std::string& options) {
  guarded([&] { options_ = load_options_from_json(options, options_); });
}

void LoaderHolder::set_parts(ShapeDict wholes, ShapeDict begins) {
  guarded([&] {
    wholes_ = std::move(wholes);
    begins_ = std::move(begins);
    Targets targets;
    core(targets);
  });
}

weightstore::Loader LoaderHolder::core(Targets& targets) const {
  std::vector<LoadTarget> core_targets;
  for (const auto& entry : tensors_) {
    check_target(entry.key(), entry.value());
    at::Tensor tensor = entry.value().detach();
    require_memory(entry.key(), tensor);  // a subclass may answer detach() with anything
    if (is_plain_memory(tensor)) {
      targets.direct.push_back({entry.key(), tensor});
    } else {
      at::Tensor copy =
          at::empty(tensor.sizes(), tensor.options().device(at::kCPU).memory_format(at::MemoryFormat::Contiguous));
      targets.staged.push_back({entry.key(), tensor, copy});
      tensor = copy;
    }
    const TensorInfo info = info_of(entry.key(), tensor);
    LoadTarget target{info.name,
                      info.dtype,
                      info.shape,
                      {static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<std::size_t>(tensor.nbytes())}};
    if (wholes_.contains(entry.key())) {
      PartPlace place = part_place(entry.key(), tensor, wholes_, begins_);
      target.part_of = {std::move(place.whole), std::move(place.begin)};
    }
    core_targets.push_back(std::move(target));
  }
  return {path_, parallel_, core_tables(tables_), std::move(core_targets)};
}

std::string LoaderHolder::default_load_info() const {
  return guarded([&] {
    Targets targets;
    return core(targets).default_load_info();
  });
}

void LoaderHolder::load(const std::string& info) {
  guarded([&] {
    Targets targets;
    weightstore::Loader loader = core(targets);
    LoadOptions options = options_;
    options.progress = progress_.begin();
    loader.configure(std::move(options));
    const ChangeNotice notice{tensors_};
    const std::vector<std::string> loaded = loader.load(info);
    put_back(targets.staged, targets.direct, {loaded.begin(), loaded.end()});
  });
}

}  // namespace weightstore::torch_bridge
