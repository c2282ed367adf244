#pragma once

// The globals that files of torch.save() may name, as data: what each stands for, and what may be done with it.

#include <cstdint>
#include <optional>
#include <string>

#include "codec/pickle_vm.h"
#include "weightstore/dtype.h"
#include "weightstore/pytorch.h"

namespace weightstore::pytorch {

enum class GlobalKind : std::uint8_t {
  kOpaque,  // not known, and passed over on request
  kOrderedDict,
  kCounter,
  kSet,
  kByteArray,
  kComplex,
  kEncode,  // _codecs.encode: how protocol 2 spells bytes
  kSize,
  kDevice,
  kLayout,
  kStorage,      // a storage class; dtype() tells which
  kTensorClass,  // torch.FloatTensor and the like, torch.Tensor, Parameter, Buffer
  kDType,
  kConstant,  // quantization schemes
  kRebuildTensor,
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kRebuildFromType,
  // Tensors without dense elements of a plain type.
  kRebuildQuantized,
  kRebuildSparse,
  kRebuildNested,
  kRebuildMeta,
};

// What a global's number means. A storage class, tensor class or dtype has an element type unless it is untyped or of a
// type that we do not read.
GlobalKind kind_of(std::uint16_t id);
std::optional<DType> dtype_of(std::uint16_t id);
bool is_untyped_storage(std::uint16_t id);

class TorchGlobals final : public PickleGlobals {
 public:
  explicit TorchGlobals(Opaque opaque) : opaque_(opaque) {}
  // Throws kUnsupported, with the name, for globals that are not in the table; under kSkip they are kOpaque.
  PickleGlobal lookup(std::string_view module, std::string_view name) const override;

 private:
  Opaque opaque_;
};

// Every call in the tree has arguments of the shape that what it calls takes. Tensors are left to whoever reads them.
void check_calls(const PickleTree& tree);

}  // namespace weightstore::pytorch
