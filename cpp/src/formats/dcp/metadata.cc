#include "formats/dcp/metadata.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "codec/memory_budget.h"
#include "codec/pickle_vm.h"
#include "formats/pytorch/container.h"
#include "formats/pytorch/data_classes.h"
#include "formats/pytorch/globals.h"
#include "weightstore/dtype.h"
#include "weightstore/error.h"

namespace weightstore::dcp {
namespace {

using Node = PickleTree::Node;

// The classes of torch.distributed.checkpoint, by numbers that no other global has.
enum class Class : std::uint16_t {
  kMetadata = 0xF000,
  kIndex,
  kTensor,
  kObject,
  kProperties,
  kChunk,
  kMemoryFormat,
  kStorageMeta,
  kPlace,
};

struct ClassName {
  std::string_view module;
  std::string_view name;
  Class number;
};

constexpr std::string_view kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr ClassName kClasses[] = {
    {kMetadataModule, "Metadata", Class::kMetadata},
    {kMetadataModule, "MetadataIndex", Class::kIndex},
    {kMetadataModule, "TensorStorageMetadata", Class::kTensor},
    {kMetadataModule, "BytesStorageMetadata", Class::kObject},
    {kMetadataModule, "TensorProperties", Class::kProperties},
    {kMetadataModule, "ChunkStorageMetadata", Class::kChunk},
    {kMetadataModule, "_MEM_FORMAT_ENCODING", Class::kMemoryFormat},
    {kMetadataModule, "StorageMeta", Class::kStorageMeta},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo", Class::kPlace},
};

class DcpGlobals final : public PickleGlobals {
 public:
  PickleGlobal lookup(std::string_view module, std::string_view name) const override {
    for (const ClassName& known : kClasses) {
      if (known.name != name || known.module != module) continue;
      return {static_cast<std::uint16_t>(known.number),
              PickleGlobal::kCall | PickleGlobal::kNew | PickleGlobal::kState};
    }
    return others_.lookup(module, name);
  }

 private:
  const pytorch::TorchGlobals others_{Opaque::kSkip};
};

class MetadataReader {
 public:
  explicit MetadataReader(const PickleTree& tree) : tree_(tree), memory_(tree.memory()) {}

  Value read() {
    if (!is(tree_.root(), Class::kMetadata)) corrupt("the pickle is not a Metadata of torch.distributed.checkpoint");
    const Node metadata = attributes(tree_.root());
    Value::Map tensors;
    Value::List objects;
    for_each_item(required(metadata, "state_dict_metadata"), [&](Node key, Node value) {
      const std::string_view name = text(key, "the name of a tensor");
      name_ = name;
      if (is(value, Class::kObject)) {
        charge(sizeof(Value) * 2);
        objects.push_back(copy(name));
      } else {
        charge(sizeof(Value::Map::value_type) * 2);
        tensors.emplace_back(copy(name), tensor(value));
      }
    });
    Value::List places;
    for_each_item(required(metadata, "storage_data"), [&](Node key, Node value) {
      charge(sizeof(Value) * 2);
      places.push_back(place(key, value));
    });
    name_ = {};
    Value::Map result;
    result.emplace_back(Value("tensors"), Value(std::move(tensors)));
    result.emplace_back(Value("objects"), Value(std::move(objects)));
    result.emplace_back(Value("places"), Value(std::move(places)));
    result.emplace_back(Value("paths"), paths(metadata));
    return Value(std::move(result));
  }

 private:
  [[noreturn]] void corrupt(const std::string& what) const {
    Error error(ErrorCode::kCorrupt, what);
    if (!name_.empty()) error.in_tensor(pytorch::shown_name(name_));
    throw error;
  }

  // Values may be shared in the pickle, and are not in the result.
  void charge(std::uint64_t bytes) { memory_.take(bytes); }

  Value copy(std::string_view view) {
    charge(MemoryBudget::heap_bytes(sizeof(std::string)) + MemoryBudget::heap_bytes(view.size() + 1));
    return Value(std::string(view));
  }

  bool is(Node node, Class number) const {
    if (tree_.kind(node) != PickleKind::kObject) return false;
    const Node callable = tree_.callable(node);
    return tree_.kind(callable) == PickleKind::kGlobal &&
           tree_.global_id(callable) == static_cast<std::uint16_t>(number);
  }

  Node attributes(Node object) const {
    const auto found = pytorch::attributes_of(tree_, object);
    if (!found) corrupt("an object without attributes: " + pytorch::type_name(tree_, object));
    return *found;
  }

  std::optional<Node> find(Node dict, std::string_view name) const {
    auto items = tree_.items(dict);
    for (Node key; items.next(key);) {
      Node value;
      items.next(value);
      if (tree_.kind(key) == PickleKind::kText && tree_.text(key) == name) return value;
    }
    return std::nullopt;
  }

  Node required(Node dict, std::string_view name) const {
    const auto found = find(dict, name);
    if (!found) corrupt("the attribute '" + std::string(name) + "' is missing");
    return *found;
  }

  template <class Call>
  void for_each_item(Node dict, Call&& call) const {
    if (tree_.kind(dict) != PickleKind::kDict) corrupt("a dict was expected");
    auto items = tree_.items(dict);
    for (Node key; items.next(key);) {
      Node value;
      items.next(value);
      call(key, value);
    }
  }

  std::string_view text(Node node, const char* what) const {
    if (tree_.kind(node) != PickleKind::kText) corrupt(std::string(what) + " is not text");
    return tree_.text(node);
  }

  Value count(Node node, const char* what) const {
    if (tree_.kind(node) != PickleKind::kInt || tree_.integer(node) < 0) {
      corrupt(std::string(what) + " is not a number from 0 on");
    }
    return Value(tree_.integer(node));
  }

  bool is_empty_sequence(Node node) const {
    const PickleKind kind = tree_.kind(node);
    return (kind == PickleKind::kTuple || kind == PickleKind::kList) && tree_.count(node) == 0;
  }

  // torch.Size, or a tuple or list.
  Value size(Node node, const char* what) {
    if (tree_.kind(node) == PickleKind::kObject && pytorch::called_kind(tree_, node) == pytorch::GlobalKind::kSize) {
      node = tree_.item(tree_.arguments(node), 0);
    }
    if (tree_.kind(node) != PickleKind::kTuple && tree_.kind(node) != PickleKind::kList) {
      corrupt(std::string(what) + " is not a torch.Size");
    }
    charge(MemoryBudget::heap_bytes(sizeof(Value::List)) + MemoryBudget::heap_bytes(tree_.count(node) * sizeof(Value)));
    Value::List result;
    result.reserve(tree_.count(node));
    auto items = tree_.items(node);
    for (Node item; items.next(item);) result.push_back(count(item, what));
    return Value(std::move(result));
  }

  std::string_view dtype(Node properties) const {
    if (!is(properties, Class::kProperties)) corrupt("the properties of the tensor are missing");
    auto state = tree_.state(properties);
    if (!state) corrupt("the properties of the tensor are empty");
    if (tree_.kind(*state) == PickleKind::kDict) {
      state = required(*state, "dtype");
    } else if (tree_.kind(*state) == PickleKind::kTuple && tree_.count(*state) > 0) {
      state = tree_.item(*state, 0);
    }
    if (tree_.kind(*state) != PickleKind::kGlobal ||
        pytorch::kind_of(tree_.global_id(*state)) != pytorch::GlobalKind::kDType) {
      corrupt("the type of the elements is not a torch.dtype");
    }
    const auto known = pytorch::dtype_of(tree_.global_id(*state));
    if (known) return name_of(*known);
    throw Error(ErrorCode::kUnsupported, "elements of the type torch." + printable(tree_.global_name(*state)))
        .in_tensor(pytorch::shown_name(name_));
  }

  Value tensor(Node node) {
    if (!is(node, Class::kTensor)) corrupt("neither a tensor nor an object");
    const Node fields = attributes(node);
    Value::List chunks;
    const Node listed = required(fields, "chunks");
    if (tree_.kind(listed) != PickleKind::kList) corrupt("the chunks are not a list");
    auto items = tree_.items(listed);
    for (Node chunk; items.next(chunk);) {
      if (!is(chunk, Class::kChunk)) corrupt("a chunk is not a ChunkStorageMetadata");
      const Node place = attributes(chunk);
      charge(3 * sizeof(Value) + MemoryBudget::heap_bytes(sizeof(Value::List)) +
             MemoryBudget::heap_bytes(2 * sizeof(Value)));
      Value::List pair;
      pair.push_back(size(required(place, "offsets"), "the offset of a chunk"));
      pair.push_back(size(required(place, "sizes"), "the size of a chunk"));
      chunks.push_back(Value(std::move(pair)));
    }
    charge(MemoryBudget::heap_bytes(sizeof(Value::List)) + MemoryBudget::heap_bytes(3 * sizeof(Value)));
    Value::List result;
    result.push_back(copy(dtype(required(fields, "properties"))));
    result.push_back(size(required(fields, "size"), "the shape"));
    result.push_back(Value(std::move(chunks)));
    return Value(std::move(result));
  }

  Value place(Node key, Node value) {
    if (!is(key, Class::kIndex)) corrupt("the key of a record is not a MetadataIndex");
    const Node index = attributes(key);
    name_ = text(required(index, "fqn"), "the name of a record");
    if (!is(value, Class::kPlace)) corrupt("a record is not a _StorageInfo");
    const Node info = attributes(value);
    const auto transforms = find(info, "transform_descriptors");
    if (transforms && tree_.kind(*transforms) != PickleKind::kNone && !is_empty_sequence(*transforms)) {
      throw Error(ErrorCode::kUnsupported,
                  "an extension of torch transformed (compressed, for example) the record; load it with torch's "
                  "FileSystemReader, and save it again")
          .in_tensor(pytorch::shown_name(name_));
    }
    const std::string_view file = text(required(info, "relative_path"), "the file of a record");
    if (file.empty() || file == "." || file == ".." || file.find('/') != std::string_view::npos ||
        file.find('\0') != std::string_view::npos) {
      corrupt("the file of a record is '" + printable(file) + "', which is not the name of a file in the directory");
    }
    charge(MemoryBudget::heap_bytes(sizeof(Value::List)) + MemoryBudget::heap_bytes(5 * sizeof(Value)));
    Value::List result;
    result.push_back(copy(name_));
    const auto offset = find(index, "offset");
    result.push_back(offset && tree_.kind(*offset) != PickleKind::kNone ? size(*offset, "the offset of a record")
                                                                        : Value());
    result.push_back(copy(file));
    result.push_back(count(required(info, "offset"), "the offset of a record"));
    result.push_back(count(required(info, "length"), "the length of a record"));
    return Value(std::move(result));
  }

  // The planner of torch keeps the paths of the flattened state dict. Other planners may keep what they like.
  Value paths(Node metadata) {
    Value::Map result;
    const auto data = find(metadata, "planner_data");
    if (!data || tree_.kind(*data) != PickleKind::kDict) return Value(std::move(result));
    for_each_item(*data, [&](Node key, Node path) {
      const PickleKind kind = tree_.kind(path);
      if (tree_.kind(key) != PickleKind::kText || (kind != PickleKind::kTuple && kind != PickleKind::kList)) return;
      charge(sizeof(Value::Map::value_type) * 2 + MemoryBudget::heap_bytes(sizeof(Value::List)) +
             MemoryBudget::heap_bytes(tree_.count(path) * sizeof(Value)));
      Value::List keys;
      keys.reserve(tree_.count(path));
      auto items = tree_.items(path);
      for (Node item; items.next(item);) {
        if (tree_.kind(item) == PickleKind::kText) {
          keys.push_back(copy(tree_.text(item)));
        } else if (tree_.kind(item) == PickleKind::kInt) {
          keys.push_back(Value(tree_.integer(item)));
        } else {
          return;
        }
      }
      result.emplace_back(copy(tree_.text(key)), Value(std::move(keys)));
    });
    return Value(std::move(result));
  }

  const PickleTree& tree_;
  MemoryBudget& memory_;
  std::string_view name_;  // of the tensor or object that is being read, for errors
};

}  // namespace

Value read_metadata(const ByteSource& source, const Limits& limits) try {
  const auto memory = std::make_shared<MemoryBudget>(source.size(), limits.pytorch_memory_bytes);
  if (source.size() > limits.pytorch_pickle_bytes) {
    throw Error(ErrorCode::kLimit, "the pickle has " + std::to_string(source.size()) + " bytes; at most " +
                                       std::to_string(limits.pytorch_pickle_bytes) + " are read");
  }
  const ChargedString pickle = pytorch::read_pickle(source, 0, source.size(), source.size(), *memory);
  const PickleTree tree =
      PickleTree::parse(std::as_bytes(std::span(pickle)), DcpGlobals(), {limits.pytorch_depth, memory}, 0);
  pytorch::check_calls(tree);
  return MetadataReader(tree).read();
} catch (Error& error) {
  error.in_file(source.name());
  throw;
}

}  // namespace weightstore::dcp
