#pragma once

// What PickleTree::parse() checks when the tree is whole.

#include <cstdint>
#include <optional>

#include "codec/pickle_vm.h"

namespace weightstore {

class PickleChecker {
 public:
  PickleChecker(const PickleTree& tree, std::uint32_t max_depth);

  // Throws when the tree breaks a rule. Time and memory are proportional to the tree, and charged to its budget.
  void run();

 private:
  using Node = PickleTree::Node;
  struct Frame {
    Node node;
    std::uint32_t height;  // of the parts seen so far
    std::uint32_t stage;   // which part of an object comes next
    PickleTree::Items items;
  };
  struct Key {
    PickleKind kind;
    Node node;
    std::int64_t number;
  };
  static constexpr std::uint8_t kOpen = 0xFF;  // on the current path
  static constexpr std::uint32_t kFree = 0xFFFFFFFF;
  static constexpr std::size_t kLongKey = 64;

  void enter(ChargedVector<Frame>& path, Node node);
  bool next_child(Frame& frame, Node& child);
  void check_keys(Node node);
  void check_elements(Node node) const;
  void require_hashable(Node key) const;
  std::optional<Key> key_of(Node node) const;
  bool same_key(const Key& a, const Key& b);
  std::uint64_t hash_of(const Key& key);
  [[noreturn]] void fail_depth() const;

  const PickleTree& tree_;
  const std::uint32_t max_depth_;
  const std::uint64_t seed_;
  ChargedVector<std::uint8_t> heights_;  // 0: not seen
  ChargedVector<Node> cells_;            // scratch of check_keys()
  // Of long texts: one may be a key of very many dicts, and is gone over once.
  ChargedMap<Node, std::uint64_t> long_hashes_;
};

}  // namespace weightstore
