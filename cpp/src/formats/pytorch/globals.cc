#include "formats/pytorch/globals.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

// In the low byte of an id, in place of a dtype.
constexpr std::uint8_t kNoType = 0xFF;
constexpr std::uint8_t kUntyped = 0xFE;
constexpr std::uint8_t kQuantized32 = 0xFD;

constexpr std::uint8_t kCall = PickleGlobal::kCall;

struct Entry {
  std::string_view module;
  std::string_view name;
  GlobalKind kind;
  std::uint8_t uses;
};

constexpr std::uint8_t kMake = kCall | PickleGlobal::kNew;
constexpr std::uint8_t kMapping = PickleGlobal::kMapping;
constexpr std::uint8_t kState = PickleGlobal::kState;

constexpr Entry kEntries[] = {
    {"collections", "OrderedDict", GlobalKind::kOrderedDict, kCall | kMapping | kState},
    {"collections", "Counter", GlobalKind::kCounter, kCall | kMapping},
    {"collections", "defaultdict", GlobalKind::kDefaultDict, kCall | kMapping},
    {"collections", "deque", GlobalKind::kDeque, kCall | PickleGlobal::kList},
    {"argparse", "Namespace", GlobalKind::kNamespace, kMake | kState},
    {"types", "SimpleNamespace", GlobalKind::kNamespace, kMake | kState},
    {"builtins", "set", GlobalKind::kSet, kCall},
    {"builtins", "frozenset", GlobalKind::kSet, kCall},
    {"builtins", "bytearray", GlobalKind::kByteArray, kCall},
    {"builtins", "bytes", GlobalKind::kByteArray, kCall},  // how protocol 2 spells none at all
    {"builtins", "complex", GlobalKind::kComplex, kCall},
    {"builtins", "slice", GlobalKind::kSlice, kCall},
    {"builtins", "range", GlobalKind::kSlice, kCall},
    {"builtins", "xrange", GlobalKind::kSlice, kCall},
    // As the factory of a defaultdict, or as a type in a config.
    {"builtins", "int", GlobalKind::kConstant, 0},
    {"builtins", "long", GlobalKind::kConstant, 0},
    {"builtins", "float", GlobalKind::kConstant, 0},
    {"builtins", "bool", GlobalKind::kConstant, 0},
    {"builtins", "str", GlobalKind::kConstant, 0},
    {"builtins", "unicode", GlobalKind::kConstant, 0},
    {"builtins", "list", GlobalKind::kConstant, 0},
    {"builtins", "dict", GlobalKind::kConstant, 0},
    {"builtins", "tuple", GlobalKind::kConstant, 0},
    {"_codecs", "encode", GlobalKind::kEncode, kCall},
    {"pathlib", "PosixPath", GlobalKind::kPath, kCall},
    {"pathlib", "PurePosixPath", GlobalKind::kPath, kCall},
    {"pathlib", "WindowsPath", GlobalKind::kWindowsPath, kCall},
    {"pathlib", "PureWindowsPath", GlobalKind::kWindowsPath, kCall},
    {"pathlib._local", "PosixPath", GlobalKind::kPath, kCall},  // Python 3.13
    {"pathlib._local", "PurePosixPath", GlobalKind::kPath, kCall},
    {"pathlib._local", "WindowsPath", GlobalKind::kWindowsPath, kCall},
    {"pathlib._local", "PureWindowsPath", GlobalKind::kWindowsPath, kCall},
    {"datetime", "datetime", GlobalKind::kDateTime, kCall},
    {"datetime", "date", GlobalKind::kDate, kCall},
    {"datetime", "time", GlobalKind::kTime, kCall},
    {"datetime", "timedelta", GlobalKind::kTimeDelta, kCall},
    {"datetime", "timezone", GlobalKind::kTimeZone, kCall},
    {"numpy", "dtype", GlobalKind::kNumpyType, kCall | kState},
    {"numpy", "ndarray", GlobalKind::kConstant, 0},
    {"numpy.core.multiarray", "scalar", GlobalKind::kNumpyScalar, kCall},
    {"numpy._core.multiarray", "scalar", GlobalKind::kNumpyScalar, kCall},
    {"numpy.core.multiarray", "_reconstruct", GlobalKind::kArray, kCall | kState},
    {"numpy._core.multiarray", "_reconstruct", GlobalKind::kArray, kCall | kState},
    {"numpy.core.numeric", "_frombuffer", GlobalKind::kArrayOfBuffer, kCall},
    {"numpy._core.numeric", "_frombuffer", GlobalKind::kArrayOfBuffer, kCall},
    {"torch.torch_version", "TorchVersion", GlobalKind::kTextClass, kMake | kState},
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
    {"torch._utils", "_rebuild_wrapper_subclass", GlobalKind::kRebuildWrapper, kCall},
    {"torch._utils", "_rebuild_qtensor", GlobalKind::kRebuildQuantized, kCall},
    {"torch._utils", "_rebuild_sparse_tensor", GlobalKind::kRebuildSparse, kCall},
    {"torch._utils", "_rebuild_sparse_csr_tensor", GlobalKind::kRebuildSparse, kCall},
    {"torch._utils", "_rebuild_nested_tensor", GlobalKind::kRebuildNested, kCall},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", GlobalKind::kRebuildMeta, kCall},
    {"torch.storage", "_load_from_bytes", GlobalKind::kStorageOfBytes, kCall},
};

// Everything in these modules acts on the machine: runs programs, opens files or sockets, imports code.
constexpr std::string_view kActingModules[] = {"os",     "posix",  "nt",     "subprocess", "sys",
                                               "shutil", "socket", "ctypes", "runpy",      "importlib"};
// Other names of parts of them, under which picklers write those.
constexpr std::string_view kActingAliases[] = {"commands", "imp", "_posixsubprocess", "_socket", "_ctypes"};
// And of these modules the functions below.
constexpr std::string_view kBuiltinModules[] = {"builtins", "__builtin__", "__builtins__", "io", "_io"};
constexpr std::string_view kActingFunctions[] = {"eval", "exec", "execfile", "compile", "open", "__import__"};

template <std::size_t kCount>
bool contains(const std::string_view (&words)[kCount], std::string_view word) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

bool is_acting_module(std::string_view name) {
  return contains(kActingModules, name) || contains(kActingAliases, name);
}

// Python's unpickler follows the dots of a name: module "torch.serialization", name "os.system" is os.system.
bool acts(std::string_view module, std::string_view name) {
  if (is_acting_module(module.substr(0, module.find('.')))) return true;
  bool is_builtin = contains(kBuiltinModules, module);
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (is_acting_module(part) || (is_builtin && contains(kActingFunctions, part))) return true;
    is_builtin = contains(kBuiltinModules, part);
    begin = end + 1;
  }
  return false;
}

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
    {"QInt32", kQuantized32},
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

}  // namespace

GlobalKind kind_of(std::uint16_t id) { return static_cast<GlobalKind>(id >> 8); }

std::optional<DType> dtype_of(std::uint16_t id) {
  const auto type = static_cast<std::uint8_t>(id & 0xFF);
  if (type >= kQuantized32) return std::nullopt;
  return static_cast<DType>(type);
}

bool is_untyped_storage(std::uint16_t id) { return kind_of(id) == GlobalKind::kStorage && (id & 0xFF) == kUntyped; }

std::uint64_t storage_item_bytes(std::uint16_t id) {
  if (const auto dtype = dtype_of(id)) return std::max(bits_of(*dtype) / 8, 1u);
  return (id & 0xFF) == kQuantized32 ? 4 : 1;
}

GlobalKind called_kind(const PickleTree& tree, PickleTree::Node object) {
  const PickleTree::Node callable = tree.callable(object);
  return tree.kind(callable) == PickleKind::kGlobal ? kind_of(tree.global_id(callable)) : GlobalKind::kOpaque;
}

PickleGlobal TorchGlobals::lookup(std::string_view module, std::string_view name) const {
  if (const auto found = find(module, name)) return *found;
  const auto shown = [&] { return "'" + printable(module) + "." + printable(name) + "'"; };
  if (acts(module, name)) {
    throw Error(ErrorCode::kUnsupported, "the file names " + shown() +
                                             ", which acts on the machine that loads it; weights have no use for it. "
                                             "Nothing of it was run, and no option makes the file readable");
  }
  if (opaque_ == Opaque::kSkip) return {make_id(GlobalKind::kOpaque, kNoType), PickleGlobal::kAll};
  throw Error(ErrorCode::kUnsupported,
              "the file needs " + shown() +
                  ", which is no tensor or plain data; nothing of it was run. To read the rest and leave such objects "
                  "out, open the file with opaque=\"skip\" (C++: Opaque::kSkip)");
}

}  // namespace weightstore::pytorch
