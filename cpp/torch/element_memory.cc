#include "element_memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/util/StringUtil.h>

#include "last_error.h"
#include "weightstore/error.h"

namespace weightstore::torch_bridge {
namespace {

constexpr const char* kNoMemory =
    "has no memory of its own: it is a DTensor, a FakeTensor or another tensor subclass that wraps its values; pass "
    "to_local() or full_tensor() of it, or the tensor it wraps";

// The bytes of storage that the tensor's elements span.
std::size_t spanned_bytes(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.dtype().itemsize(),
                                          static_cast<std::size_t>(tensor.storage_offset()));
}

}  // namespace

std::optional<std::string> why_no_memory(const at::Tensor& tensor) {
  if (!tensor.defined()) return "is None; expected a tensor";
  if (tensor.is_nested()) return "is nested; pass the tensors that it is made of";
  if (tensor.is_mkldnn()) return "is an mkldnn tensor; pass to_dense() of it";
  if (tensor.layout() != at::kStrided) {
    return c10::str("has the layout ", tensor.layout(), "; pass to_dense() of it, or its indices and values");
  }
  if (tensor.device().is_meta()) {
    return "is on the meta device, so it has a shape but no values; give it memory with to_empty()";
  }
  if (tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return kNoMemory;
  if (tensor.numel() == 0) return std::nullopt;
  if (!tensor.has_storage()) {
    // Some devices keep their tensors elsewhere, and can still copy them to the CPU.
    return tensor.device().is_cpu() ? std::optional<std::string>(kNoMemory) : std::nullopt;
  }
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  const std::size_t needed = spanned_bytes(tensor);
  // Asking the tensor for its pointer throws for some of those that have none.
  const bool has_pointer = storage._mutable_data_ptr_no_checks().get() != nullptr;
  if (has_pointer && storage.nbytes() >= needed) return std::nullopt;
  if (tensor.key_set().has(c10::DispatchKey::Python)) return kNoMemory;
  return c10::str("lies in a storage of ", storage.nbytes(), " bytes where its shape needs ", needed,
                  ": the storage was freed or shrunk; pass the tensor while it has its memory (with FSDP: inside "
                  "summon_full_params()), or a clone() from before");
}

void require_memory(const std::string& name, const at::Tensor& tensor) {
  auto why = why_no_memory(tensor);
  if (!why) return;
  if (tensor.defined() && tensor.device().is_meta()) {
    NoDataError error(std::move(*why));
    error.in_tensor(name);
    throw error;
  }
  throw Error(ErrorCode::kInvalidArgument, std::move(*why)).in_tensor(name);
}

}  // namespace weightstore::torch_bridge
