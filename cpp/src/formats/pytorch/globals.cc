#include "formats/pytorch/globals.h"

#include <string_view>

#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

// In the low byte of an id, in place of a dtype.
constexpr std::uint8_t kNoType = 0xFF;
constexpr std::uint8_t kUntyped = 0xFE;

constexpr std::uint8_t kCall = PickleGlobal::kCall;

struct Entry {
  std::string_view module;
  std::string_view name;
  GlobalKind kind;
  std::uint8_t uses;
};

constexpr Entry kEntries[] = {
    {"collections", "OrderedDict", GlobalKind::kOrderedDict, kCall | PickleGlobal::kMapping | PickleGlobal::kState},
    {"collections", "Counter", GlobalKind::kCounter, kCall | PickleGlobal::kMapping},
    {"builtins", "set", GlobalKind::kSet, kCall},
    {"builtins", "bytearray", GlobalKind::kByteArray, kCall},
    {"builtins", "bytes", GlobalKind::kByteArray, kCall},  // how protocol 2 spells none at all
    {"builtins", "complex", GlobalKind::kComplex, kCall},
    {"_codecs", "encode", GlobalKind::kEncode, kCall},
    {"torch", "Size", GlobalKind::kSize, kCall},
    {"torch", "device", GlobalKind::kDevice, kCall},
    {"torch", "Tensor", GlobalKind::kTensorClass, 0},
    {"torch.nn.parameter", "Parameter", GlobalKind::kTensorClass, 0},
    {"torch.nn.parameter", "Buffer", GlobalKind::kTensorClass, 0},
    {"torch.serialization", "_get_layout", GlobalKind::kLayout, kCall},
    {"torch", "per_tensor_affine", GlobalKind::kConstant, 0},
    {"torch", "per_channel_affine", GlobalKind::kConstant, 0},
    {"torch", "per_tensor_symmetric", GlobalKind::kConstant, 0},
    {"torch", "per_channel_symmetric", GlobalKind::kConstant, 0},
    {"torch", "per_channel_affine_float_qparams", GlobalKind::kConstant, 0},
    {"torch._utils", "_rebuild_tensor", GlobalKind::kRebuildTensor, kCall},
    {"torch._utils", "_rebuild_tensor_v2", GlobalKind::kRebuildTensorV2, kCall},
    {"torch._utils", "_rebuild_tensor_v3", GlobalKind::kRebuildTensorV3, kCall},
    {"torch._utils", "_rebuild_parameter", GlobalKind::kRebuildParameter, kCall},
    {"torch._utils", "_rebuild_parameter_with_state", GlobalKind::kRebuildParameter, kCall},
    {"torch._tensor", "_rebuild_from_type_v2", GlobalKind::kRebuildFromType, kCall},
    {"torch._utils", "_rebuild_qtensor", GlobalKind::kRebuildQuantized, kCall},
    {"torch._utils", "_rebuild_sparse_tensor", GlobalKind::kRebuildSparse, kCall},
    {"torch._utils", "_rebuild_sparse_csr_tensor", GlobalKind::kRebuildSparse, kCall},
    {"torch._utils", "_rebuild_nested_tensor", GlobalKind::kRebuildNested, kCall},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", GlobalKind::kRebuildMeta, kCall},
};

struct Typed {
  std::string_view name;
  std::uint8_t dtype;
};

constexpr std::uint8_t type(DType dtype) { return static_cast<std::uint8_t>(dtype); }

// `<name>Storage` and `<name>Tensor` in torch and torch.cuda.
constexpr Typed kClasses[] = {
    {"Double", type(DType::kF64)},
    {"Float", type(DType::kF32)},
    {"Half", type(DType::kF16)},
    {"BFloat16", type(DType::kBF16)},
    {"Long", type(DType::kI64)},
    {"Int", type(DType::kI32)},
    {"Short", type(DType::kI16)},
    {"Char", type(DType::kI8)},
    {"Byte", type(DType::kU8)},
    {"Bool", type(DType::kBool)},
    {"ComplexFloat", type(DType::kC64)},
    {"ComplexDouble", type(DType::kC128)},
    {"QInt8", kNoType},
    {"QInt32", kNoType},
    {"QUInt8", kNoType},
    {"QUInt4x2", kNoType},
    {"QUInt2x4", kNoType},
    {"Untyped", kUntyped},
};

constexpr Typed kTypes[] = {
    {"float64", type(DType::kF64)},
    {"double", type(DType::kF64)},
    {"float32", type(DType::kF32)},
    {"float", type(DType::kF32)},
    {"float16", type(DType::kF16)},
    {"half", type(DType::kF16)},
    {"bfloat16", type(DType::kBF16)},
    {"int64", type(DType::kI64)},
    {"long", type(DType::kI64)},
    {"int32", type(DType::kI32)},
    {"int", type(DType::kI32)},
    {"int16", type(DType::kI16)},
    {"short", type(DType::kI16)},
    {"int8", type(DType::kI8)},
    {"uint8", type(DType::kU8)},
    {"uint16", type(DType::kU16)},
    {"uint32", type(DType::kU32)},
    {"uint64", type(DType::kU64)},
    {"bool", type(DType::kBool)},
    {"complex32", type(DType::kC32)},
    {"chalf", type(DType::kC32)},
    {"complex64", type(DType::kC64)},
    {"cfloat", type(DType::kC64)},
    {"complex128", type(DType::kC128)},
    {"cdouble", type(DType::kC128)},
    {"float8_e4m3fn", type(DType::kF8_E4M3)},
    {"float8_e5m2", type(DType::kF8_E5M2)},
    {"float8_e4m3fnuz", type(DType::kF8_E4M3FNUZ)},
    {"float8_e5m2fnuz", type(DType::kF8_E5M2FNUZ)},
    {"float8_e8m0fnu", type(DType::kF8_E8M0)},
    {"float4_e2m1fn_x2", type(DType::kF4)},
    {"bits8", kNoType},
    {"bits16", kNoType},
    {"bits1x8", kNoType},
    {"bits2x4", kNoType},
    {"bits4x2", kNoType},
    {"qint8", kNoType},
    {"qint32", kNoType},
    {"quint8", kNoType},
    {"quint4x2", kNoType},
    {"quint2x4", kNoType},
};

std::uint16_t make_id(GlobalKind kind, std::uint8_t dtype) {
  return static_cast<std::uint16_t>(static_cast<unsigned>(kind) << 8 | dtype);
}

std::optional<PickleGlobal> find_class(std::string_view module, std::string_view name) {
  const bool of_torch = module == "torch" || module == "torch.cuda";
  if (!of_torch && module != "torch.storage") return std::nullopt;
  GlobalKind kind = GlobalKind::kStorage;
  if (name.ends_with("Storage")) {
    name.remove_suffix(7);
  } else if (name.ends_with("Tensor") && of_torch) {
    kind = GlobalKind::kTensorClass;
    name.remove_suffix(6);
  } else {
    return std::nullopt;
  }
  for (const Typed& known : kClasses) {
    const bool untyped = known.dtype == kUntyped;
    if (known.name != name || untyped != (module == "torch.storage") || (untyped && kind != GlobalKind::kStorage)) {
      continue;
    }
    return PickleGlobal{make_id(kind, known.dtype), 0};
  }
  return std::nullopt;
}

std::optional<PickleGlobal> find(std::string_view module, std::string_view name) {
  if (module == "__builtin__") module = "builtins";  // Python 2
  for (const Entry& entry : kEntries) {
    if (entry.name == name && entry.module == module) return PickleGlobal{make_id(entry.kind, kNoType), entry.uses};
  }
  if (const auto found = find_class(module, name)) return found;
  if (module != "torch") return std::nullopt;
  for (const Typed& known : kTypes) {
    if (known.name == name) return PickleGlobal{make_id(GlobalKind::kDType, known.dtype), 0};
  }
  return std::nullopt;
}

// ---- arguments -----------------------------------------------------------------------------------------------------

using Node = PickleTree::Node;

bool is_pair(const PickleTree& tree, Node node) {
  const PickleKind kind = tree.kind(node);
  return (kind == PickleKind::kTuple || kind == PickleKind::kList) && tree.count(node) == 2;
}

// Python 2 made an OrderedDict of a list of pairs, Python 3 makes an empty one. `seen` are lists that were gone over.
bool is_list_of_pairs(const PickleTree& tree, Node node, ChargedSet<Node>& seen) {
  if (tree.kind(node) != PickleKind::kList) return false;
  if (!seen.insert(node).second) return true;
  auto items = tree.items(node);
  for (Node item; items.next(item);) {
    if (!is_pair(tree, item)) return false;
  }
  return true;
}

bool is_latin1(const PickleTree& tree, Node node) {
  if (tree.kind(node) != PickleKind::kText) return false;
  const std::string_view text = tree.text(node);
  return text == "latin1" || text == "latin-1";
}

bool takes(const PickleTree& tree, GlobalKind kind, Node arguments, ChargedSet<Node>& seen) {
  const std::size_t count = tree.count(arguments);
  const auto is = [&](std::size_t i, PickleKind wanted) {
    return i < count && tree.kind(tree.item(arguments, i)) == wanted;
  };
  const bool encoded = count == 2 && is(0, PickleKind::kText) && is_latin1(tree, tree.item(arguments, 1));
  switch (kind) {
    case GlobalKind::kOrderedDict:
      return count == 0 || (count == 1 && is_list_of_pairs(tree, tree.item(arguments, 0), seen));
    case GlobalKind::kCounter:
      return count == 0 || (count == 1 && is(0, PickleKind::kDict));
    case GlobalKind::kSet:
      return count == 0 || (count == 1 && is(0, PickleKind::kList));
    case GlobalKind::kByteArray:
      return count == 0 || encoded ||
             (count == 1 && (is(0, PickleKind::kBytes) || is(0, PickleKind::kObject)));  // of an encode()
    case GlobalKind::kEncode:
      return encoded;
    case GlobalKind::kComplex:
      return count == 2 && is(0, PickleKind::kFloat) && is(1, PickleKind::kFloat);
    case GlobalKind::kSize:
      return count == 1 && is(0, PickleKind::kTuple);
    case GlobalKind::kDevice:
      return is(0, PickleKind::kText) && (count == 1 || (count == 2 && is(1, PickleKind::kInt)));
    case GlobalKind::kLayout:
      return count == 1 && is(0, PickleKind::kText);
    default:
      return true;
  }
}

}  // namespace

GlobalKind kind_of(std::uint16_t id) { return static_cast<GlobalKind>(id >> 8); }

std::optional<DType> dtype_of(std::uint16_t id) {
  const auto type = static_cast<std::uint8_t>(id & 0xFF);
  if (type == kNoType || type == kUntyped) return std::nullopt;
  return static_cast<DType>(type);
}

bool is_untyped_storage(std::uint16_t id) { return kind_of(id) == GlobalKind::kStorage && (id & 0xFF) == kUntyped; }

PickleGlobal TorchGlobals::lookup(std::string_view module, std::string_view name) const {
  if (const auto found = find(module, name)) return *found;
  if (opaque_ == Opaque::kSkip) return {make_id(GlobalKind::kOpaque, kNoType), PickleGlobal::kAll};
  throw Error(ErrorCode::kUnsupported,
              "the file needs '" + printable(module) + "." + printable(name) +
                  "', which is no tensor or plain data; nothing of it was run. To read the tensors and pass over such "
                  "objects, open the file with opaque=\"skip\" (C++: Opaque::kSkip)");
}

void check_calls(const PickleTree& tree) {
  ChargedSet<Node> seen(tree.memory());
  for (std::size_t i = 0; i < tree.node_count(); ++i) {
    const auto node = static_cast<Node>(i);
    if (tree.kind(node) != PickleKind::kObject) continue;
    const Node callable = tree.callable(node);
    if (tree.kind(callable) != PickleKind::kGlobal) continue;
    if (takes(tree, kind_of(tree.global_id(callable)), tree.arguments(node), seen)) continue;
    throw Error(ErrorCode::kCorrupt, "arguments that " + printable(tree.global_module(callable)) + "." +
                                         printable(tree.global_name(callable)) + " does not take");
  }
}

}  // namespace weightstore::pytorch
