#include "formats/pytorch/table_maker.h"

#include <optional>
#include <utility>

#include "formats/pytorch/data_classes.h"
#include "formats/pytorch/numpy_objects.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

// Many tensors may share one long shape. A tensor of a model has few dimensions, and takes a hundred bytes of the
// pickle.
constexpr std::uint64_t kStepsOfDimension = 16;

// The class of a tensor, or the function that makes it.
std::string type_of_tensor(const PickleTree& tree, Node node) {
  if (tree.kind(node) == PickleKind::kPersistent) return "torch.storage";
  const Node arguments = tree.arguments(node);
  const bool has_class = called_kind(tree, node) == GlobalKind::kRebuildFromType && tree.count(arguments) == 4;
  return type_name(tree, has_class ? tree.item(arguments, 1) : node);
}

}  // namespace

TableMaker::TableMaker(const PickleTree& tree, const Container& container, std::shared_ptr<const ByteSource> source,
                       const Limits& limits, Opaque opaque)
    : tree_(tree),
      container_(container),
      limits_(limits),
      opaque_(opaque),
      memory_(container.memory()),
      placer_(std::move(source), container.big_endian(), memory_),
      work_(tree.length()),
      known_(memory_) {}

bool TableMaker::tensor(std::string_view name, Node node) {
  try {
    place(name, node);
    return true;
  } catch (Error& error) {
    if (error.code() != ErrorCode::kUnsupported || opaque_ == Opaque::kError) throw error.in_tensor(shown_name(name));
    left_out(name, type_of_tensor(tree_, node), error.message());
    return false;
  }
}

void TableMaker::left_out(std::string_view name, std::string type, std::string reason) {
  if (opaque_ == Opaque::kError) throw Error(ErrorCode::kUnsupported, std::move(reason)).in_tensor(shown_name(name));
  memory_.take(3 * sizeof(LeftOut) + MemoryBudget::heap_bytes(name.size()) + MemoryBudget::heap_bytes(type.size()) +
               MemoryBudget::heap_bytes(reason.size()));
  left_out_.push_back({std::string(name), std::move(type), std::move(reason)});
}

TensorTable TableMaker::finish() {
  if (placer_.size() == 0 && !left_out_.empty()) refuse_all();
  TensorTable table = placer_.finish();
  table.set_left_out(std::move(left_out_));
  return table;
}

void TableMaker::place(std::string_view name, Node node) {
  if (!is_array(tree_, node)) return place(name, tensor_call(tree_, node));
  // The elements may be in the state of the object, so that objects of the same arguments differ.
  place_once(name, {GlobalKind::kArray, node}, [&] {
    PickledArray array = read_array(tree_, node, limits_);
    work_.spend(kStepsOfDimension * array.shape.size());
    placer_.place(name, std::move(array));
  });
}

void TableMaker::place(std::string_view name, const TensorCall& call) {
  place_once(name, call, [&] {
    if (const auto inner = inner_tensor(tree_, container_, call)) return place(name, *inner);
    const StoredTensor stored = read_tensor(tree_, container_, call, limits_);
    work_.spend(kStepsOfDimension * stored.shape.size());
    placer_.place(name, stored);
  });
}

template <class Read>
void TableMaker::place_once(std::string_view name, const TensorCall& call, Read read) {
  if (known_.empty()) known_.resize(tree_.node_count());
  Known& known = known_[call.node];
  if (known.kind == call.kind) {
    if (known.is_read) return placer_.place_again(name, known.number);
    if (known.is_left_out) throw Error(ErrorCode::kUnsupported, left_out_[known.number].reason);
  }
  // Until it is read, it counts as the value that is left out next, which it is if read() throws.
  known = {call.kind, false, true, static_cast<std::uint32_t>(left_out_.size())};
  const auto number = static_cast<std::uint32_t>(placer_.size());
  read();
  known = {call.kind, true, false, number};
}

void TableMaker::refuse_all() const {
  const LeftOut& first = left_out_.front();
  const std::string more =
      left_out_.size() > 1 ? " and " + std::to_string(left_out_.size() - 1) + " more values" : std::string();
  throw Error(ErrorCode::kUnsupported, "no tensor is left: the file has " + printable(first.type) + " (" +
                                           first.reason + ")" + more +
                                           ", which are not read; read_config() shows the plain data")
      .in_tensor(shown_name(first.name));
}

}  // namespace weightstore::pytorch
