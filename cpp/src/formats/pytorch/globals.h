#pragma once

// The globals that files of torch.save() name: what each stands for, and what may be done with it.

#include <cstdint>
#include <optional>
#include <string>

#include "codec/pickle_vm.h"
#include "weightstore/dtype.h"
#include "weightstore/pytorch.h"

namespace weightstore::pytorch {

enum class GlobalKind : std::uint8_t {
  kOpaque,  // not known; only with Opaque::kSkip
  // Classes and functions whose results are plain data. data_classes.h says what an object of each holds.
  kOrderedDict,
  kCounter,
  kDefaultDict,
  kNamespace,  // argparse.Namespace, types.SimpleNamespace
  kDeque,
  kSet,  // also frozenset
  kByteArray,
  kComplex,
  kEncode,  // _codecs.encode: how protocol 2 spells bytes
  kSlice,   // also range
  kPath,
  kWindowsPath,
  kDateTime,
  kDate,
  kTime,
  kTimeDelta,
  kTimeZone,
  kTextClass,  // a subclass of str
  kSize,
  kDevice,
  kLayout,
  kNumpyType,    // numpy.dtype
  kNumpyScalar,  // a number with a numpy.dtype
  // Names that are never called.
  kStorage,      // a storage class; dtype() tells which
  kTensorClass,  // torch.FloatTensor and the like, torch.Tensor, Parameter, Buffer
  kDType,
  kConstant,  // quantization schemes, and classes that only stand for themselves
  // Functions that make tensors, and classes of them.
  kRebuildTensor,
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kRebuildFromType,
  kRebuildWrapper,  // a tensor that holds other tensors, such as a DTensor
  kArray,           // a numpy array, made empty and then filled by its state
  kArrayOfBuffer,   // a numpy array, made of its bytes
  // Tensors without dense elements of a plain type, and storages that pickle.dump() puts into the pickle.
  kRebuildQuantized,
  kRebuildSparse,
  kRebuildNested,
  kRebuildMeta,
  kStorageOfBytes,
};

// What a global's number means. A storage class, tensor class or dtype has an element type unless it is untyped or of a
// type that we do not read.
GlobalKind kind_of(std::uint16_t id);
std::optional<DType> dtype_of(std::uint16_t id);
bool is_untyped_storage(std::uint16_t id);
// Bytes of one element of a storage class.
std::uint64_t storage_item_bytes(std::uint16_t id);

// The kind of the global that Python would call to make the object; kOpaque when that is no global.
GlobalKind called_kind(const PickleTree& tree, PickleTree::Node object);

// The one rule about what a global is. A name is
// - in the table of tensors and plain data;
// - or one that acts on the machine, such as os.system or eval: the file is refused, whatever the options say;
// - or unknown: refused with Opaque::kError, kOpaque with Opaque::kSkip.
// docs/security.md lists the names that act.
class TorchGlobals final : public PickleGlobals {
 public:
  explicit TorchGlobals(Opaque opaque) : opaque_(opaque) {}
  // Throws kUnsupported, with the name, for globals that are refused.
  PickleGlobal lookup(std::string_view module, std::string_view name) const override;

 private:
  Opaque opaque_;
};

}  // namespace weightstore::pytorch
