// Until 0.1.9: a tar archive of four members. `storages` and `tensors` are lists of pickled descriptions with binary
// data between them; `pickle` is the object, whose persistent ids are the tensors' keys.

#include <string>

#include "base/checked.h"
#include "base/corrupt.h"
#include "formats/pytorch/container.h"
#include "formats/pytorch/globals.h"
#include "formats/pytorch/member_reader.h"
#include "formats/pytorch/tar_members.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

// Keys were addresses: integers, of any size.
std::string key_of(const PickleTree& tree, Node node) {
  switch (tree.kind(node)) {
    case PickleKind::kInt:
      return std::to_string(tree.integer(node));
    case PickleKind::kText:
    case PickleKind::kBigInt:
      if (tree.text(node).size() > kMaxKeyBytes) throw corrupt("a key of very many characters");
      return std::string(tree.text(node));
    default:
      throw corrupt("a key that is neither a number nor text");
  }
}

void require_tuple(const PickleTree& tree, Node node, std::size_t count, const char* what) {
  if (tree.kind(node) != PickleKind::kTuple || tree.count(node) != count)
    throw corrupt(std::string(what) + " is no tuple");
}

std::uint16_t require_class(const PickleTree& tree, Node node, GlobalKind kind) {
  if (tree.kind(node) == PickleKind::kGlobal && kind_of(tree.global_id(node)) == kind) return tree.global_id(node);
  throw corrupt("a class that is none");
}

class TarContainer final : public Container {
 public:
  TarContainer(const ByteSource& source, const Limits& limits, std::shared_ptr<MemoryBudget> memory)
      : Container(std::move(memory)), by_key_(*memory_), tensors_(*memory_), references_(*memory_) {
    const TarMembers members = read_tar(source);
    if (members.pickle.size > limits.pytorch_pickle_bytes) {
      throw Error(ErrorCode::kLimit, "a pickle of " + std::to_string(members.pickle.size) + " bytes");
    }
    pickle_offset_ = members.pickle.begin;
    pickle_.resize(static_cast<std::size_t>(members.pickle.size));
    source.read_at(pickle_offset_, std::as_writable_bytes(std::span(pickle_)));
    const TorchGlobals globals(Opaque::kError);
    PickleParser parser(globals, {.memory = memory_});
    read_storages({source, members.storages, parser, *memory_});
    read_tensors({source, members.tensors, parser, *memory_}, limits);
  }

  void bind(const PickleTree& tree, const Options& options) override {
    for (std::size_t i = 0; i < tree.node_count(); ++i) {
      const auto node = static_cast<Node>(i);
      if (tree.kind(node) != PickleKind::kPersistent) continue;
      const Node id = tree.persistent_id(node);
      if (tree.kind(id) == PickleKind::kTuple) {  // (class, file, source)
        if (options.opaque == Opaque::kSkip) continue;
        throw Error(ErrorCode::kUnsupported,
                    "the file holds a whole model, with the source of its classes; to read its "
                    "tensors, open it with opaque=\"skip\" (C++: Opaque::kSkip)");
      }
      const auto found = tensors_.find(std::string_view(key_of(tree, id)));
      if (found == tensors_.end()) throw corrupt("a tensor that is not in the archive");
      references_.emplace(node, &found->second);
    }
  }

  const StoredTensor* tensor(Node persistent) const override {
    const auto found = references_.find(persistent);
    return found == references_.end() ? nullptr : found->second;
  }

 private:
  void read_storages(MemberReader in) {
    for (std::uint64_t left = in.count(); left > 0; --left) {
      const PickleTree& tree = in.pickle();
      require_tuple(tree, tree.root(), 3, "a storage");
      const std::string key = key_of(tree, tree.item(tree.root(), 0));
      const std::uint16_t storage_class = require_class(tree, tree.item(tree.root(), 2), GlobalKind::kStorage);
      Storage storage = storage_of_class(storage_class);
      if (!storage.dtype) throw corrupt("a storage of a type that tar archives do not have");
      const auto nbytes = checked_mul(in.number(), storage_item_bytes(storage_class));
      storage.begin = in.skip(nbytes);
      storage.nbytes = *nbytes;
      add_storage(key, storage);
    }
    const PickleTree& views = in.pickle();
    if (views.kind(views.root()) != PickleKind::kList) throw corrupt("the views of storages are no list");
    auto items = views.items(views.root());
    for (Node view; items.next(view);) {
      require_tuple(views, view, 4, "a view of a storage");
      Storage storage = storage_named(key_of(views, views.item(view, 1)));
      const std::uint64_t width = bits_of(*storage.dtype) / 8;
      const auto begin = checked_mul(natural(views, views.item(view, 2), "the offset of a view"), width);
      const auto nbytes = checked_mul(natural(views, views.item(view, 3), "elements of a view"), width);
      if (!begin || !nbytes || *begin > storage.nbytes || *nbytes > storage.nbytes - *begin) {
        throw corrupt("a view reaches beyond its storage");
      }
      storage.begin += *begin;
      storage.nbytes = *nbytes;
      add_storage(key_of(views, views.item(view, 0)), storage);
    }
    in.expect_end();
  }

  void add_storage(std::string_view key, Storage storage) {
    storage.number = static_cast<std::uint32_t>(by_key_.size());
    if (!by_key_.emplace(ChargedString(key, *memory_), storage).second) throw corrupt("a storage is there twice");
  }

  const Storage& storage_named(std::string_view key) const {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) throw corrupt("storage '" + printable(key) + "' is not in the archive");
    return found->second;
  }

  void read_tensors(MemberReader in, const Limits& limits) {
    for (std::uint64_t left = in.count(); left > 0; --left) {
      const PickleTree& tree = in.pickle();
      require_tuple(tree, tree.root(), 3, "a tensor");
      const std::string key = key_of(tree, tree.item(tree.root(), 0));
      StoredTensor layout(*memory_);
      layout.storage = storage_named(key_of(tree, tree.item(tree.root(), 1)));
      const auto dtype = dtype_of(require_class(tree, tree.item(tree.root(), 2), GlobalKind::kTensorClass));
      if (!dtype || dtype != layout.storage.dtype) throw corrupt("a tensor and its storage are of different types");
      layout.dtype = *dtype;
      const std::uint64_t rank = in.number(4);
      in.number(4);  // padding
      if (rank > limits.rank) throw Error(ErrorCode::kLimit, "a tensor of " + std::to_string(rank) + " dimensions");
      for (std::uint64_t i = 0; i < rank; ++i) layout.shape.push_back(in.number());
      for (std::uint64_t i = 0; i < rank; ++i) layout.strides.push_back(in.number());
      layout.offset = in.number();
      if (!tensors_.emplace(ChargedString(key, *memory_), std::move(layout)).second) {
        throw corrupt("a tensor is there twice");
      }
    }
    in.expect_end();
  }

  ChargedMap<ChargedString, Storage> by_key_;
  ChargedMap<ChargedString, StoredTensor> tensors_;
  ChargedMap<Node, const StoredTensor*> references_;
};

}  // namespace

std::unique_ptr<Container> open_tar(const ByteSource& source, const Limits& limits,
                                    std::shared_ptr<MemoryBudget> memory) {
  return std::make_unique<TarContainer>(source, limits, std::move(memory));
}

}  // namespace weightstore::pytorch
