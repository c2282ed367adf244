#include "loader.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <memory>
#include <utility>
#include <vector>

#include "last_error.h"
#include "tensor_bridge.h"
#include "weightstore/error.h"

namespace weightstore::torch_bridge {
namespace {

// Throws for what has no memory, or is expanded.
void check_target(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_nested()) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(tensor.defined() ? "is nested" : "is None") + "; expected a dense tensor")
        .in_tensor(name);
  }
  if (tensor.layout() != at::kStrided) {
    throw Error(ErrorCode::kUnsupported,
                c10::str("has the layout ", tensor.layout(), "; only dense tensors are loaded into"))
        .in_tensor(name);
  }
  if (tensor.device().is_meta()) {
    throw Error(ErrorCode::kInvalidArgument,
                "is on the meta device, without memory to load into; give it some with to_empty()")
        .in_tensor(name);
  }
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
    Staged staged;
    core(staged);
  });
}

void LoaderHolder::configure(const std::string& options) {
  guarded([&] { options_ = load_options_from_json(options, options_); });
}

weightstore::Loader LoaderHolder::core(Staged& staged) const {
  std::vector<std::shared_ptr<weightstore::HashTable>> tables;
  for (const auto& entry : tables_) tables.push_back(entry.value()->core());
  std::vector<LoadTarget> targets;
  for (const auto& entry : tensors_) {
    check_target(entry.key(), entry.value());
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
    const ChangeNotice notice{tensors_};
    loader.load(info);
    for (auto& [target, copy] : staged) target.copy_(copy);
  });
}

}  // namespace weightstore::torch_bridge
