// What pickle.dump() writes: one pickle, and nothing else. It has no storages beside it; arrays of numpy have their
// elements inside.

#include <string>

#include "base/corrupt.h"
#include "codec/pickle_text.h"
#include "formats/pytorch/container.h"
#include "formats/pytorch/data_classes.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

std::string describe(const PickleTree& tree, Node node) {
  switch (tree.kind(node)) {
    case PickleKind::kObject:
    case PickleKind::kGlobal:
      return "'" + printable(type_name(tree, node)) + "'";
    case PickleKind::kList:
      return "a list";
    case PickleKind::kTuple:
      return "a tuple";
    case PickleKind::kSet:
    case PickleKind::kFrozenSet:
      return "a set";
    default:
      return "a single value";
  }
}

// A dict, or an object that has keys and values. An object of an unknown class may be a module; where it is not, the
// error of whoever goes over the tree says more.
bool is_mapping(const PickleTree& tree, Node root) {
  if (tree.kind(root) != PickleKind::kObject) return tree.kind(root) == PickleKind::kDict;
  const GlobalKind kind = called_kind(tree, root);
  return kind == GlobalKind::kOpaque || holds(kind) == Holds::kMapping;
}

class PlainContainer final : public Container {
 public:
  PlainContainer(const ByteSource& source, const Limits& limits, std::shared_ptr<MemoryBudget> memory, bool is_text)
      : Container(std::move(memory)) {
    if (is_text) {
      pickle_ = read_text_pickle(source, limits.pytorch_pickle_bytes);
      is_rewritten_ = true;
      return;
    }
    pickle_ = read_pickle(source, 0, source.size(), limits.pytorch_pickle_bytes, *memory_);
    if (pickle_.size() == source.size()) return;
    throw corrupt(std::to_string(source.size() - pickle_.size()) + " bytes behind the pickle's STOP")
        .at_offset(pickle_.size());
  }

  void bind(const PickleTree& tree, const Options&) override {
    if (!is_mapping(tree, tree.root())) {
      throw Error(ErrorCode::kUnsupported,
                  "this is a pickle that torch.save() did not write. Such a pickle is read "
                  "if it holds a dict, but this one holds " +
                      describe(tree, tree.root()));
    }
    if (persistent_count(tree) == 0) return;
    throw Error(ErrorCode::kUnsupported,
                "this is a pickle without a container of torch.save(), but it refers to storages outside of it; it may "
                "be the data.pkl of an archive: give the archive");
  }

 private:
  ChargedString read_text_pickle(const ByteSource& source, std::uint64_t limit) const {
    if (source.size() > limit) {
      throw Error(ErrorCode::kLimit, "a pickle of more than " + std::to_string(limit) + " bytes");
    }
    ChargedString bytes(static_cast<std::size_t>(source.size()), '\0', *memory_);
    source.read_at(0, std::as_writable_bytes(std::span(bytes)));
    return to_protocol_2(std::as_bytes(std::span(bytes)), *memory_);
  }
};

}  // namespace

std::unique_ptr<Container> open_plain(const ByteSource& source, const Limits& limits,
                                      std::shared_ptr<MemoryBudget> memory, bool is_text) {
  return std::make_unique<PlainContainer>(source, limits, std::move(memory), is_text);
}

}  // namespace weightstore::pytorch
