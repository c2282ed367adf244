// Until 0.1.9: a tar archive of four members. `storages` and `tensors` are lists of pickled descriptions with binary
// data between them; `pickle` is the object, whose persistent ids are the tensors' keys.

#include <array>
#include <map>
#include <string>

#include "codec/checked.h"
#include "codec/little_endian.h"
#include "formats/pytorch/container.h"
#include "formats/pytorch/globals.h"
#include "formats/pytorch/tar_members.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

constexpr std::uint64_t kSmallPickle = 1u << 20;

Error corrupt(std::string message) { return Error(ErrorCode::kCorrupt, std::move(message)); }

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

// Takes pickles and numbers off a member.
class MemberReader {
 public:
  MemberReader(const ByteSource& source, const TarMember& member)
      : source_(source), position_(member.begin), end_(member.begin + member.size) {}

  PickleTree pickle() {
    const std::uint64_t offset = position_;
    bytes_ = read_pickle(source_, position_, end_, kSmallPickle);
    position_ += bytes_.size();
    return PickleTree::parse(std::as_bytes(std::span(bytes_)), TorchGlobals(Opaque::kError), {}, offset);
  }

  std::uint64_t count() {
    const PickleTree tree = pickle();
    const std::uint64_t count = natural(tree, tree.root(), "a count");
    // Each takes some bytes: a count beyond that is refused before anything is made of it.
    if (count > end_ - position_) throw corrupt("a count of " + std::to_string(count)).at_offset(position_);
    return count;
  }

  std::uint64_t number(std::size_t bytes = 8) {
    std::array<std::byte, 8> digits{};
    if (end_ - position_ < bytes) throw corrupt("a member of the archive ends early").at_offset(position_);
    source_.read_at(position_, MutableBytes(digits).first(bytes));
    position_ += bytes;
    return load_little_endian<std::uint64_t>(digits.data());
  }

  // Passes over `nbytes` and returns where they begin.
  std::uint64_t skip(std::optional<std::uint64_t> nbytes) {
    if (!nbytes || *nbytes > end_ - position_)
      throw corrupt("a storage reaches beyond its member").at_offset(position_);
    position_ += *nbytes;
    return position_ - *nbytes;
  }

  void expect_end() const {
    if (position_ != end_) throw corrupt("bytes behind the end of a member").at_offset(position_);
  }

 private:
  const ByteSource& source_;
  std::uint64_t position_;
  const std::uint64_t end_;
  std::string bytes_;
};

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
  TarContainer(const ByteSource& source, const Limits& limits) {
    const TarMembers members = read_tar(source);
    if (members.pickle.size > limits.pytorch_pickle_bytes) {
      throw Error(ErrorCode::kLimit, "a pickle of " + std::to_string(members.pickle.size) + " bytes");
    }
    pickle_offset_ = members.pickle.begin;
    pickle_.resize(static_cast<std::size_t>(members.pickle.size));
    source.read_at(pickle_offset_, std::as_writable_bytes(std::span(pickle_)));
    read_storages({source, members.storages});
    read_tensors({source, members.tensors}, limits);
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
      const auto found = tensors_.find(key_of(tree, id));
      if (found == tensors_.end()) throw corrupt("a tensor that is not in the archive");
      references_.emplace(node, &found->second);
    }
  }

  const TensorLayout* tensor(Node persistent) const override {
    const auto found = references_.find(persistent);
    return found == references_.end() ? nullptr : found->second;
  }

 private:
  void read_storages(MemberReader in) {
    for (std::uint64_t left = in.count(); left > 0; --left) {
      const PickleTree tree = in.pickle();
      require_tuple(tree, tree.root(), 3, "a storage");
      Storage storage;
      storage.dtype = storage_dtype(tree, require_class(tree, tree.item(tree.root(), 2), GlobalKind::kStorage));
      const auto nbytes = checked_mul(in.number(), item_bytes(storage.dtype));
      storage.begin = in.skip(nbytes);
      storage.nbytes = *nbytes;
      add_storage(key_of(tree, tree.item(tree.root(), 0)), storage);
    }
    const PickleTree views = in.pickle();
    if (views.kind(views.root()) != PickleKind::kList) throw corrupt("the views of storages are no list");
    auto items = views.items(views.root());
    for (Node view; items.next(view);) {
      require_tuple(views, view, 4, "a view of a storage");
      Storage storage = storage_named(key_of(views, views.item(view, 1)));
      const std::uint64_t width = item_bytes(storage.dtype);
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

  void add_storage(std::string key, Storage storage) {
    storage.number = static_cast<std::uint32_t>(by_key_.size());
    if (!by_key_.emplace(std::move(key), storage).second) throw corrupt("a storage is there twice");
  }

  const Storage& storage_named(const std::string& key) const {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) throw corrupt("storage '" + printable(key) + "' is not in the archive");
    return found->second;
  }

  void read_tensors(MemberReader in, const Limits& limits) {
    for (std::uint64_t left = in.count(); left > 0; --left) {
      const PickleTree tree = in.pickle();
      require_tuple(tree, tree.root(), 3, "a tensor");
      TensorLayout layout;
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
      if (!tensors_.emplace(key_of(tree, tree.item(tree.root(), 0)), std::move(layout)).second) {
        throw corrupt("a tensor is there twice");
      }
    }
    in.expect_end();
  }

  std::map<std::string, Storage> by_key_;
  std::map<std::string, TensorLayout> tensors_;
  std::map<Node, const TensorLayout*> references_;
};

}  // namespace

std::unique_ptr<Container> open_tar(const ByteSource& source, const Limits& limits) {
  return std::make_unique<TarContainer>(source, limits);
}

}  // namespace weightstore::pytorch
