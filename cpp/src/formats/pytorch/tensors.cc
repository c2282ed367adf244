#include "formats/pytorch/tensors.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/checked.h"
#include "base/corrupt.h"
#include "base/strided/strided_source.h"
#include "formats/pytorch/globals.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

Error unsupported(std::string message) { return Error(ErrorCode::kUnsupported, std::move(message)); }

std::optional<GlobalKind> called(const PickleTree& tree, Node node) {
  if (tree.kind(node) != PickleKind::kObject) return std::nullopt;
  return called_kind(tree, node);
}

// Bytes of one element in a storage.
std::uint64_t item_bytes(DType dtype) { return std::max(bits_of(dtype) / 8, 1u); }

bool is_complex(DType dtype) { return dtype == DType::kC32 || dtype == DType::kC64 || dtype == DType::kC128; }

bool has_sign(DType dtype) {
  return is_complex(dtype) || dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

class TensorReader {
 public:
  TensorReader(const PickleTree& tree, const Container& container, const Limits& limits)
      : tree_(tree), container_(container), limits_(limits) {}

  StoredTensor read(const TensorCall& call) {
    if (call.kind == GlobalKind::kOpaque) {
      if (const StoredTensor* layout = container_.tensor(call.node)) return *layout;
      throw unsupported("a storage by itself, without a tensor");
    }
    const Node arguments = call.node;
    const std::size_t count = tree_.count(arguments);
    switch (call.kind) {
      case GlobalKind::kRebuildTensor:
        require(count == 4);
        return typed(arguments);
      case GlobalKind::kRebuildTensorV2: {
        require(count == 6 || count == 7);
        require_grad(arguments);
        StoredTensor layout = typed(arguments);
        if (count == 7) read_flags(tree_.item(arguments, 6), layout);
        return layout;
      }
      case GlobalKind::kRebuildTensorV3: {
        require(count == 7 || count == 8);
        require_grad(arguments);
        StoredTensor layout = of_type(arguments, tree_.item(arguments, 6));
        if (count == 8) read_flags(tree_.item(arguments, 7), layout);
        return layout;
      }
      default:
        throw corrupt("a tensor made by a function that makes none");
    }
  }

  std::optional<TensorCall> inner(const TensorCall& call) {
    switch (call.kind) {
      case GlobalKind::kRebuildParameter: {
        require(tree_.count(call.node) == 3 || tree_.count(call.node) == 4);
        const Node tensor = tree_.item(call.node, 0);
        require(is_tensor(tree_, container_, tensor) && !is_array(tree_, tensor));
        return tensor_call(tree_, tensor);
      }
      case GlobalKind::kRebuildFromType: {
        require(tree_.count(call.node) == 4);
        const Node function = tree_.item(call.node, 0);
        const Node arguments = tree_.item(call.node, 2);
        require(tree_.kind(function) == PickleKind::kGlobal);
        require(tree_.kind(tree_.item(call.node, 1)) == PickleKind::kGlobal);
        require(tree_.kind(arguments) == PickleKind::kTuple);
        const GlobalKind maker = kind_of(tree_.global_id(function));
        if (maker == GlobalKind::kRebuildWrapper) return TensorCall{maker, tree_.item(call.node, 3)};
        if (maker == GlobalKind::kOpaque) throw unsupported("a tensor of a kind that is not known");
        return made_by(maker, arguments);
      }
      case GlobalKind::kRebuildWrapper:
        return tensor_call(tree_, local_part(call.node));
      default:
        return std::nullopt;
    }
  }

  static TensorCall made_by(GlobalKind kind, Node arguments) {
    switch (kind) {
      case GlobalKind::kRebuildWrapper:
        throw unsupported("a tensor that is made of other tensors");
      case GlobalKind::kRebuildQuantized:
        throw unsupported("a quantized tensor; dequantize() it before it is saved");
      case GlobalKind::kRebuildSparse:
        throw unsupported("a sparse tensor; save its to_dense(), or its indices and values");
      case GlobalKind::kRebuildNested:
        throw unsupported("a nested tensor; save its parts");
      case GlobalKind::kRebuildMeta:
        throw unsupported("a tensor on the meta device, which has a shape but no values");
      case GlobalKind::kStorageOfBytes:
        throw unsupported("a storage by itself, without a tensor");
      default:
        return {kind, arguments};
    }
  }

 private:
  // A tensor that is made of others has them as attributes. A DTensor has one, the part of its process.
  Node local_part(Node state) {
    const auto find = [&](Node attributes) -> std::optional<Node> {
      if (tree_.kind(attributes) != PickleKind::kDict) return std::nullopt;
      auto items = tree_.items(attributes);
      for (Node key; items.next(key);) {
        Node value;
        items.next(value);
        if (tree_.kind(key) == PickleKind::kText && tree_.text(key) == "_local_tensor") return value;
      }
      return std::nullopt;
    };
    std::optional<Node> local = find(state);
    // (__dict__, slots)
    if (tree_.kind(state) == PickleKind::kTuple && tree_.count(state) == 2) local = find(tree_.item(state, 1));
    if (!local || !is_tensor(tree_, container_, *local) || is_array(tree_, *local)) {
      throw unsupported("a tensor that is made of other tensors, and none of them is its local part");
    }
    return *local;
  }

  void require(bool right) const {
    if (!right) throw corrupt("arguments that make no tensor");
  }

  void require_grad(Node arguments) const {
    require(tree_.kind(tree_.item(arguments, 4)) == PickleKind::kBool);
    require(tree_.kind(tree_.item(arguments, 5)) == PickleKind::kObject ||
            tree_.kind(tree_.item(arguments, 5)) == PickleKind::kDict ||
            tree_.kind(tree_.item(arguments, 5)) == PickleKind::kNone);
  }

  StoredTensor typed(Node arguments) {
    StoredTensor layout = dense(arguments);
    if (!layout.storage.dtype) throw corrupt("a tensor of an untyped storage without a type");
    layout.dtype = *layout.storage.dtype;
    return layout;
  }

  StoredTensor of_type(Node arguments, Node dtype) {
    require(tree_.kind(dtype) == PickleKind::kGlobal && kind_of(tree_.global_id(dtype)) == GlobalKind::kDType);
    const auto known = dtype_of(tree_.global_id(dtype));
    if (!known) throw unsupported("elements of the type torch." + std::string(tree_.global_name(dtype)));
    StoredTensor layout = dense(arguments);
    if (layout.storage.dtype && layout.storage.dtype != known)
      throw corrupt("a tensor and its storage are of different types");
    layout.dtype = *known;
    return layout;
  }

  StoredTensor dense(Node arguments) {
    StoredTensor layout(tree_.memory());
    const Node storage = tree_.item(arguments, 0);
    if (called(tree_, storage) == GlobalKind::kStorageOfBytes) {
      throw unsupported(
          "a tensor of torch that pickle.dump() saved; save it with torch.save(), or as an array of numpy");
    }
    require(tree_.kind(storage) == PickleKind::kPersistent);
    const Storage* found = container_.storage(storage);
    if (found == nullptr) throw corrupt("a tensor of what is no storage");
    if (found->quantized) throw unsupported("a tensor of a quantized storage; dequantize() it before it is saved");
    layout.storage = *found;
    layout.offset = natural(tree_, tree_.item(arguments, 1), "the offset of a tensor");
    read_numbers(tree_.item(arguments, 2), layout.shape, "a dimension");
    read_numbers(tree_.item(arguments, 3), layout.strides, "a stride");
    require(layout.shape.size() == layout.strides.size());
    return layout;
  }

  void read_numbers(Node node, ChargedVector<std::uint64_t>& out, const char* what) const {
    if (called(tree_, node) == GlobalKind::kSize) node = tree_.item(tree_.arguments(node), 0);
    require(tree_.kind(node) == PickleKind::kTuple);
    if (tree_.count(node) > limits_.rank) {
      throw Error(ErrorCode::kLimit, "a tensor of " + std::to_string(tree_.count(node)) + " dimensions");
    }
    out.resize(tree_.count(node));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = natural(tree_, tree_.item(node, i), what);
  }

  // {"conj": True} and {"neg": True}: what torch had not done yet when it saved.
  void read_flags(Node node, StoredTensor& layout) const {
    require(tree_.kind(node) == PickleKind::kDict);
    auto items = tree_.items(node);
    for (Node key; items.next(key);) {
      Node value;
      items.next(value);
      require(tree_.kind(key) == PickleKind::kText && tree_.kind(value) == PickleKind::kBool);
      if (tree_.text(key) == "conj") {
        layout.conjugate = tree_.boolean(value);
      } else if (tree_.text(key) == "neg") {
        layout.negate = tree_.boolean(value);
      } else {
        throw unsupported("a tensor with the unknown property '" + printable(tree_.text(key)) + "'");
      }
    }
    if (layout.conjugate && !is_complex(layout.dtype)) throw corrupt("a conjugate of what is not complex");
    if (layout.negate && !has_sign(layout.dtype)) throw corrupt("a negative of what has no sign");
  }

  const PickleTree& tree_;
  const Container& container_;
  const Limits& limits_;
};

// Bytes of the storage, from its beginning, that the tensor needs. Its element count is not zero.
std::optional<std::uint64_t> needed_bytes(const StoredTensor& layout, std::uint64_t item) {
  std::optional<std::uint64_t> last = layout.offset;
  for (std::size_t i = 0; i < layout.shape.size() && last; ++i) {
    const auto reach = checked_mul(layout.shape[i] - 1, layout.strides[i]);
    last = reach ? checked_add(*last, *reach) : std::nullopt;
  }
  const auto count = last ? checked_add(*last, 1) : std::nullopt;
  return count ? checked_mul(*count, item) : std::nullopt;
}

bool is_contiguous(const StoredTensor& layout) {
  std::uint64_t expected = 1;
  for (std::size_t i = layout.shape.size(); i-- > 0;) {
    if (layout.shape[i] == 1) continue;
    if (layout.strides[i] != expected) return false;
    expected *= layout.shape[i];
  }
  return true;
}

std::uint64_t number_bytes(DType dtype) { return is_complex(dtype) ? item_bytes(dtype) / 2 : item_bytes(dtype); }

// The elements of a tensor that needed_bytes() found in its storage.
StridedElements elements_of(const StoredTensor& layout, std::uint64_t begin) {
  StridedElements elements;
  elements.begin = begin;
  elements.item_bytes = item_bytes(layout.dtype);
  elements.dims.reserve(layout.shape.size());
  for (std::size_t i = 0; i < layout.shape.size(); ++i) {
    // The stride of a single element is never taken and may be any number.
    const std::uint64_t stride = layout.shape[i] == 1 ? 0 : layout.strides[i] * elements.item_bytes;
    elements.dims.push_back({layout.shape[i], static_cast<std::int64_t>(stride)});
  }
  elements.sign_bytes = number_bytes(layout.dtype);
  elements.change_even_signs = layout.negate;
  elements.change_odd_signs = layout.negate != layout.conjugate;
  return elements;
}

}  // namespace

bool is_tensor(const PickleTree& tree, const Container& container, Node node) {
  if (tree.kind(node) == PickleKind::kPersistent) {
    return container.tensor(node) != nullptr || container.storage(node) != nullptr;
  }
  const auto kind = called(tree, node);
  return kind && *kind >= GlobalKind::kRebuildTensor;
}

TensorCall tensor_call(const PickleTree& tree, Node node) {
  if (tree.kind(node) == PickleKind::kPersistent) return {GlobalKind::kOpaque, node};
  return TensorReader::made_by(called_kind(tree, node), tree.arguments(node));
}

std::optional<TensorCall> inner_tensor(const PickleTree& tree, const Container& container, const TensorCall& call) {
  return TensorReader(tree, container, Limits()).inner(call);
}

StoredTensor read_tensor(const PickleTree& tree, const Container& container, const TensorCall& call,
                         const Limits& limits) {
  return TensorReader(tree, container, limits).read(call);
}

void TensorPlacer::check_width(const StoredTensor& layout, std::uint64_t width) {
  if (layout.storage.dtype) return;
  if (widths_.size() <= layout.storage.number) widths_.resize(layout.storage.number + std::size_t{1});
  std::uint8_t& known = widths_[layout.storage.number];
  if (known != 0 && known != width) {
    throw unsupported(
        "one storage in the other byte order, under types of different sizes: there is no telling which bytes "
        "to exchange");
  }
  known = static_cast<std::uint8_t>(width);
}

void TensorPlacer::place(std::string_view name, PickledArray array) {
  constexpr std::uint64_t kSourceBytes = 256;  // of the source, the owner, and their place in the table
  TensorTable::Row tensor{name, array.dtype, array.shape, 0, 0, array.elements.size(), {}, {}};
  if (array.elements.empty()) return table_.add(tensor);
  // The elements outlive the budget, which stays charged for them.
  MemoryLease lease(memory_, kSourceBytes + MemoryBudget::heap_bytes(array.elements.size()));
  const auto elements = std::make_shared<const std::string>(array.elements);
  lease.keep();
  tensor.source =
      table_.add_source(memory_source(std::as_bytes(std::span(*elements)), elements, std::string(file_->name())));
  table_.add(tensor);
}

void TensorPlacer::place(std::string_view name, const StoredTensor& layout) {
  const std::uint64_t item = item_bytes(layout.dtype);
  const std::uint64_t number = number_bytes(layout.dtype);
  std::span<const std::uint64_t> dims = layout.shape;
  // torch counts pairs of 4-bit elements.
  ChargedVector<std::uint64_t> shape(memory_);
  if (layout.dtype == DType::kF4) {
    shape = layout.shape;
    if (shape.empty()) shape.push_back(1);
    const auto doubled = checked_mul(shape.back(), 2);
    if (!doubled) throw corrupt("a dimension of more than 2^64 elements");
    shape.back() = *doubled;
    dims = shape;
  }
  const auto nbytes = contiguous_bytes(layout.dtype, dims);
  if (!nbytes) throw Error(ErrorCode::kLimit, "a tensor of more than 2^64 bits");
  TensorTable::Row tensor{name, layout.dtype, dims, 0, layout.storage.begin, layout.storage.begin, {}, {}};
  if (*nbytes == 0) return table_.add(tensor);

  const auto needed = needed_bytes(layout, item);
  if (!needed || *needed > layout.storage.nbytes) {
    throw corrupt("needs " + (needed ? std::to_string(*needed) : std::string("more than 2^64")) +
                  " bytes of its storage, which has " + std::to_string(layout.storage.nbytes))
        .at_offset(layout.storage.begin);
  }
  const bool swapped = (std::endian::native == std::endian::big) != big_endian_ && number > 1;
  if (big_endian_) check_width(layout, number);
  tensor.begin = layout.storage.begin + layout.offset * item;
  tensor.end = tensor.begin + *nbytes;
  if (is_contiguous(layout) && !swapped && !layout.conjugate && !layout.negate) return table_.add(tensor);

  memory_.take(strided_source_bytes(layout.shape.size()));
  StridedElements elements = elements_of(layout, tensor.begin);
  if (swapped) elements.swap_bytes = number;
  tensor.source = table_.add_source(strided_source(file_, std::move(elements)));
  tensor.begin = 0;
  tensor.end = *nbytes;
  table_.add(tensor);
}

}  // namespace weightstore::pytorch
