// Reading the tree, and the checks that need all of it: nothing contains itself, nothing is nested too deeply, no dict
// has a key twice.

#include <algorithm>
#include <bit>
#include <chrono>
#include <string>

#include "base/name_hash.h"
#include "codec/pickle_check.h"
#include "codec/pickle_vm.h"
#include "weightstore/error.h"

namespace weightstore {

PickleTree::PickleTree(std::shared_ptr<MemoryBudget> memory)
    : memory_(std::move(memory)),
      nodes_(*memory_),
      pool_(*memory_),
      chunks_(*memory_),
      globals_(*memory_),
      objects_(*memory_) {
  add(PickleKind::kNone, 0, 0, 0);
  add(PickleKind::kBool, 0, 0, 0);
  add(PickleKind::kBool, 0, 0, 1);
  add(PickleKind::kTuple, 0, 0, 0);
  for (std::uint32_t i = 0; i < 256; ++i) add(PickleKind::kInt, 0, i, 0);
}

void PickleTree::clear() {
  nodes_.truncate(kConstants);
  pool_.truncate(0);
  chunks_.truncate(0);
  globals_.truncate(0);
  objects_.truncate(0);
}

std::int64_t PickleTree::integer(Node node) const {
  const Cell& cell = nodes_[node];
  return static_cast<std::int64_t>(std::uint64_t{cell.high} << 32 | cell.low);
}

double PickleTree::number(Node node) const { return std::bit_cast<double>(integer(node)); }

std::string_view PickleTree::text(Node node) const {
  const Cell& cell = nodes_[node];
  return {bytes_ + cell.low, cell.length()};
}

std::size_t PickleTree::count(Node node) const {
  return kind(node) == PickleKind::kObject ? objects_[nodes_[node].low].count : nodes_[node].length();
}

std::optional<PickleTree::Node> PickleTree::state(Node node) const {
  const Node state = objects_[nodes_[node].low].state;
  if (state == kNoNode) return std::nullopt;
  return state;
}

PickleTree::Items PickleTree::items(Node node) const {
  Items items;
  items.tree_ = this;
  items.next_ = kNoNode;
  const Cell& cell = nodes_[node];
  switch (cell.kind()) {
    case PickleKind::kTuple:
      items.position_ = cell.low;
      items.left_ = cell.length();
      break;
    case PickleKind::kList:
    case PickleKind::kDict:
    case PickleKind::kSet:
    case PickleKind::kFrozenSet:
      items.next_ = cell.low;
      break;
    case PickleKind::kObject:
      items.next_ = objects_[cell.low].first;
      break;
    default:
      break;
  }
  return items;
}

bool PickleTree::Items::next(Node& item) {
  while (left_ == 0) {
    if (next_ == kNoNode) return false;
    const Chunk& chunk = tree_->chunks_[next_];
    position_ = chunk.begin;
    left_ = chunk.count;
    next_ = chunk.next;
  }
  --left_;
  item = tree_->pool_[position_++];
  return true;
}

PickleChecker::PickleChecker(const PickleTree& tree, std::uint32_t max_depth)
    : tree_(tree),
      max_depth_(max_depth),
      seed_(reinterpret_cast<std::uintptr_t>(tree.bytes_) * 0x9E3779B97F4A7C15u ^
            static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())),
      heights_(tree.nodes_.size(), 0, tree.memory()),
      cells_(tree.memory()),
      long_hashes_(tree.memory()) {}

// Depth first, without recursion. A node's height is one more than that of its highest part; a node that is met again
// counts with the height it has, so that sharing costs nothing.
void PickleChecker::run() {
  ChargedVector<Frame> path(tree_.memory());
  enter(path, tree_.root());
  while (!path.empty()) {
    Frame& frame = path.back();
    Node child;
    if (!next_child(frame, child)) {
      const std::uint32_t height = frame.height + 1;
      heights_[frame.node] = static_cast<std::uint8_t>(height);
      path.pop_back();
      if (!path.empty() && path.back().height < height) path.back().height = height;
      continue;
    }
    if (heights_[child] == kOpen) {
      throw Error(ErrorCode::kUnsupported, "the pickle has a value that contains itself");
    }
    if (heights_[child] == 0) {
      enter(path, child);
    } else {
      frame.height = std::max<std::uint32_t>(frame.height, heights_[child]);
      if (path.size() + heights_[child] > max_depth_) fail_depth();
    }
  }
}

void PickleChecker::fail_depth() const {
  throw Error(ErrorCode::kLimit, "values nested more than " + std::to_string(max_depth_) + " deep");
}

void PickleChecker::enter(ChargedVector<Frame>& path, Node node) {
  if (path.size() >= max_depth_) fail_depth();
  const PickleKind kind = tree_.kind(node);
  if (kind < PickleKind::kTuple || kind == PickleKind::kGlobal) {
    heights_[node] = 1;
    if (!path.empty() && path.back().height == 0) path.back().height = 1;
    return;
  }
  if (kind == PickleKind::kDict || (kind == PickleKind::kObject && tree_.holds_mapping(node))) check_keys(node);
  if (kind == PickleKind::kSet || kind == PickleKind::kFrozenSet) check_elements(node);
  heights_[node] = kOpen;
  path.push_back({node, 0, 0, tree_.items(node)});
}

bool PickleChecker::next_child(Frame& frame, Node& child) {
  const PickleKind kind = tree_.kind(frame.node);
  if (kind == PickleKind::kPersistent) {
    child = tree_.persistent_id(frame.node);
    return frame.stage++ == 0;
  }
  if (kind == PickleKind::kObject) {
    const std::uint32_t stage = frame.stage++;
    if (stage == 0) child = tree_.callable(frame.node);
    if (stage == 1) child = tree_.arguments(frame.node);
    if (stage < 2) return true;
    const auto state = tree_.state(frame.node);
    if (stage == 2 && state) {
      child = *state;
      return true;
    }
  }
  return frame.items.next(child);
}

void PickleChecker::check_elements(Node node) const {
  auto items = tree_.items(node);
  for (Node item; items.next(item);) require_hashable(item);
}

void PickleChecker::require_hashable(Node key) const {
  const PickleKind kind = tree_.kind(key);
  if (kind != PickleKind::kList && kind != PickleKind::kDict && kind != PickleKind::kSet) return;
  throw Error(ErrorCode::kCorrupt, "a list, dict or set as the key of a dict or the element of a set");
}

// Keys are equal as Python finds them equal: True is 1, and 1.0 too. Tuples and objects are not compared.
bool PickleChecker::same_key(const Key& a, const Key& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == PickleKind::kNone || a.kind == PickleKind::kInt) return a.number == b.number;
  const std::string_view text = tree_.text(a.node);
  if (text.size() != tree_.text(b.node).size()) return false;
  if (text.size() >= kLongKey && hash_of(a) != hash_of(b)) return false;
  return text == tree_.text(b.node);
}

std::uint64_t PickleChecker::hash_of(const Key& key) {
  if (key.kind == PickleKind::kNone || key.kind == PickleKind::kInt) {
    return hash_name({reinterpret_cast<const char*>(&key.number), sizeof(key.number)}, seed_);
  }
  const std::string_view text = tree_.text(key.node);
  if (text.size() < kLongKey) return hash_name(text, seed_);
  const auto [known, added] = long_hashes_.try_emplace(key.node, 0);
  if (added) known->second = hash_name(text, seed_);
  return known->second;
}

std::optional<PickleChecker::Key> PickleChecker::key_of(Node node) const {
  switch (tree_.kind(node)) {
    case PickleKind::kNone:
      return Key{PickleKind::kNone, node, 0};
    case PickleKind::kBool:
      return Key{PickleKind::kInt, node, tree_.boolean(node) ? 1 : 0};
    case PickleKind::kInt:
      return Key{PickleKind::kInt, node, tree_.integer(node)};
    case PickleKind::kFloat: {
      const double number = tree_.number(node);
      if (!(number >= -9.2e18 && number <= 9.2e18)) return std::nullopt;
      const auto whole = static_cast<std::int64_t>(number);
      if (static_cast<double>(whole) != number) return std::nullopt;
      return Key{PickleKind::kInt, node, whole};
    }
    case PickleKind::kText:
    case PickleKind::kBytes:
      return Key{tree_.kind(node), node, 0};
    default:
      return std::nullopt;
  }
}

void PickleChecker::check_keys(Node node) {
  const std::size_t keys = tree_.count(node) / 2;
  std::size_t capacity = 8;
  while (capacity < 2 * keys) capacity *= 2;
  cells_.assign(capacity, kFree);
  auto items = tree_.items(node);
  for (Node item; items.next(item);) {
    Node value;
    items.next(value);
    require_hashable(item);
    const auto key = key_of(item);
    if (!key) continue;
    std::size_t cell = hash_of(*key) & (capacity - 1);
    for (; cells_[cell] != kFree; cell = (cell + 1) & (capacity - 1)) {
      if (!same_key(*key_of(cells_[cell]), *key)) continue;
      const bool named = key->kind == PickleKind::kText || key->kind == PickleKind::kBytes;
      throw Error(ErrorCode::kCorrupt, "a dict has the key '" +
                                           (key->kind == PickleKind::kNone ? "None"
                                            : named                        ? printable(tree_.text(item))
                                                                           : std::to_string(key->number)) +
                                           "' twice");
    }
    cells_[cell] = item;
  }
}

}  // namespace weightstore
