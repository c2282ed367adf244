// From 0.1.10 to 1.5: five pickles one behind the other (a magic number, a protocol version, facts about the machine,
// the object, the keys of its storages), then every storage in the order of the keys: a count and that many elements.
// How large an element is stands in the object alone, so the storages can be found only when its pickle is read.

#include <string>

#include "base/checked.h"
#include "base/corrupt.h"
#include "base/little_endian.h"
#include "formats/pytorch/container.h"
#include "formats/pytorch/globals.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

constexpr std::int64_t kProtocolVersion = 1001;
constexpr std::uint64_t kSmallPickle = 1u << 20;

class StreamContainer final : public Container {
 public:
  StreamContainer(const ByteSource& source, const Limits& limits, std::shared_ptr<MemoryBudget> memory)
      : Container(std::move(memory)), source_(source), keys_(*memory_), roots_(*memory_) {
    next(kSmallPickle);  // the magic number, which brought us here
    check_version();
    check_system();
    pickle_offset_ = position_;
    pickle_ = next(limits.pytorch_pickle_bytes);
    keys_ = next(limits.pytorch_pickle_bytes);
  }

  void bind(const PickleTree& tree, const Options& options) override {
    collect(tree, options);
    const TorchGlobals globals(Opaque::kError);
    const PickleTree keys =
        PickleTree::parse(std::as_bytes(std::span(keys_)), globals, {.memory = memory_}, position_ - keys_.size());
    if (keys.kind(keys.root()) != PickleKind::kList) throw corrupt("the keys of the storages are no list");
    auto items = keys.items(keys.root());
    for (Node item; items.next(item);) {
      if (keys.kind(item) != PickleKind::kText) throw corrupt("the key of a storage is no text");
      place(keys.text(item));
    }
    if (position_ != source_.size()) {
      throw corrupt(std::to_string(source_.size() - position_) + " bytes behind the last storage").at_offset(position_);
    }
    storages_.reserve(persistent_count(tree));
    for_each_id(tree, options, [&](Node node, const StorageId& id) { storages_.emplace_back(node, resolve(id)); });
  }

 private:
  struct Root {
    Storage storage;
    std::uint64_t numel = 0;
    std::uint16_t storage_class = 0;
    bool placed = false;
  };

  ChargedString next(std::uint64_t limit) {
    ChargedString bytes = read_pickle(source_, position_, source_.size(), limit, *memory_);
    position_ += bytes.size();
    return bytes;
  }

  PickleTree next_small(ChargedString& bytes) {
    const std::uint64_t offset = position_;
    bytes = next(kSmallPickle);
    return PickleTree::parse(std::as_bytes(std::span(bytes)), TorchGlobals(Opaque::kError), {.memory = memory_},
                             offset);
  }

  void check_version() {
    ChargedString bytes(*memory_);
    const PickleTree tree = next_small(bytes);
    if (tree.kind(tree.root()) != PickleKind::kInt) throw corrupt("the protocol version is no number");
    if (tree.integer(tree.root()) == kProtocolVersion) return;
    throw Error(ErrorCode::kUnsupported, "protocol version " + std::to_string(tree.integer(tree.root())) +
                                             " of torch; " + std::to_string(kProtocolVersion) + " is the only one");
  }

  void check_system() {
    ChargedString bytes(*memory_);
    const PickleTree tree = next_small(bytes);
    if (tree.kind(tree.root()) != PickleKind::kDict) throw corrupt("the facts about the writing machine are no dict");
  }

  void collect(const PickleTree& tree, const Options& options) {
    for_each_id(tree, options, [&](Node, const StorageId& id) {
      const auto [found, added] = roots_.try_emplace(id.key);
      Root& root = found->second;
      if (added) {
        root.storage = storage_of_class(id.storage_class);
        root.storage.number = static_cast<std::uint32_t>(roots_.size() - 1);
        root.numel = id.numel;
        root.storage_class = id.storage_class;
      } else if (root.storage_class != id.storage_class || root.numel != id.numel) {
        throw corrupt("storage '" + printable(id.key) + "' is referred to as of two types or sizes");
      }
    });
  }

  template <class Visit>
  static void for_each_id(const PickleTree& tree, const Options& options, const Visit& visit) {
    for (std::size_t i = 0; i < tree.node_count(); ++i) {
      const auto node = static_cast<Node>(i);
      if (tree.kind(node) != PickleKind::kPersistent) continue;
      if (const auto id = parse_storage_id(tree, tree.persistent_id(node), true, options)) visit(node, *id);
    }
  }

  // The next storage of the file is this one.
  void place(std::string_view key) {
    const auto found = roots_.find(key);
    if (found == roots_.end()) {
      throw corrupt("storage '" + printable(key) + "' is there, but nothing says what it holds").at_offset(position_);
    }
    Root& root = found->second;
    if (root.placed) throw corrupt("storage '" + printable(key) + "' is there twice").at_offset(position_);
    root.placed = true;
    if (source_.size() - position_ < 8) throw corrupt("the file ends before its last storage").at_offset(position_);
    std::byte digits[8];
    source_.read_at(position_, digits);
    const auto numel = load_little_endian<std::uint64_t>(digits);
    if (numel != root.numel) {
      throw corrupt("storage '" + printable(key) + "' has " + std::to_string(numel) + " elements, the object says " +
                    std::to_string(root.numel))
          .at_offset(position_);
    }
    root.storage.begin = position_ + 8;
    const auto nbytes = checked_mul(numel, storage_item_bytes(root.storage_class));
    if (!nbytes || *nbytes > source_.size() - root.storage.begin) {
      throw corrupt("the file ends inside storage '" + printable(key) + "'").at_offset(position_);
    }
    root.storage.nbytes = *nbytes;
    position_ = root.storage.begin + *nbytes;
  }

  Storage resolve(const StorageId& id) const {
    const Root& root = roots_.find(id.key)->second;
    if (!root.placed) throw corrupt("storage '" + printable(id.key) + "' is not in the file");
    if (!id.view) return root.storage;
    Storage part = root.storage;
    const auto end = checked_add(id.view->offset, id.view->numel);
    if (!end || *end > root.numel) throw corrupt("a view reaches beyond storage '" + printable(id.key) + "'");
    part.begin += id.view->offset * storage_item_bytes(root.storage_class);
    part.nbytes = id.view->numel * storage_item_bytes(root.storage_class);
    return part;
  }

  const ByteSource& source_;
  std::uint64_t position_ = 0;
  ChargedString keys_;
  ChargedMap<std::string_view, Root> roots_;  // keys point into the object's pickle
};

}  // namespace

std::unique_ptr<Container> open_stream(const ByteSource& source, const Limits& limits,
                                       std::shared_ptr<MemoryBudget> memory) {
  return std::make_unique<StreamContainer>(source, limits, std::move(memory));
}

}  // namespace weightstore::pytorch
