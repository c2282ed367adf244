#pragma once

// Pickles of protocols 2 to 5 as data. The machine builds a tree; it imports nothing, calls nothing, and charges a
// MemoryBudget for all that it allocates.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "codec/memory_budget.h"
#include "weightstore/byte_source.h"

namespace weightstore {

enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kBigInt,  // two's complement, little-endian, more than eight bytes
  kFloat,
  kText,   // UTF-8
  kBytes,  // also what Python 2 called a string, when it is not UTF-8
  kTuple,
  kList,
  kDict,
  kSet,
  kFrozenSet,
  kGlobal,      // a name that a real unpickler would import
  kObject,      // what a real unpickler would make by a call
  kPersistent,  // what the file's own container knows
};

// What a global may be used for; everything else is refused.
struct PickleGlobal {
  static constexpr std::uint8_t kCall = 1;     // REDUCE
  static constexpr std::uint8_t kNew = 2;      // NEWOBJ
  static constexpr std::uint8_t kMapping = 4;  // the result takes SETITEMS
  static constexpr std::uint8_t kList = 8;     // the result takes APPENDS and ADDITEMS
  static constexpr std::uint8_t kState = 16;   // the result takes BUILD
  static constexpr std::uint8_t kAll = 31;
  std::uint16_t id = 0;  // the caller's number for it
  std::uint8_t uses = 0;
};

// Decides about globals. Throws to refuse one.
class PickleGlobals {
 public:
  virtual ~PickleGlobals() = default;
  virtual PickleGlobal lookup(std::string_view module, std::string_view name) const = 0;
};

struct PickleLimits {
  std::uint32_t depth = 128;
  // Charged by the tree for as long as it lives. None: one of its own, as if the pickle were the whole file.
  std::shared_ptr<MemoryBudget> memory = nullptr;
};

// Elements in blocks that never move, so that growing never needs the memory twice.
template <class T>
class PickleArena {
 public:
  explicit PickleArena(MemoryBudget& budget) : blocks_(budget) {}
  ~PickleArena() {
    for (T* block : blocks_) memory().deallocate(block, kBlock);
  }
  PickleArena(PickleArena&&) noexcept = default;
  PickleArena& operator=(PickleArena&&) = delete;

  std::uint32_t add(const T& value) {
    if (size_ == blocks_.size() * kBlock) grow();
    (*this)[size_] = value;
    return static_cast<std::uint32_t>(size_++);
  }
  // Forgets all elements but the first `size`, and keeps the memory.
  void truncate(std::size_t size) { size_ = size; }
  T& operator[](std::size_t i) { return blocks_[i / kBlock][i % kBlock]; }
  const T& operator[](std::size_t i) const { return blocks_[i / kBlock][i % kBlock]; }
  std::size_t size() const { return size_; }

 private:
  static_assert(std::is_trivially_copyable_v<T>);
  static constexpr std::size_t kBlock = 64;  // few, because most pickles are small

  Charged<T> memory() const { return blocks_.get_allocator(); }
  void grow() {
    blocks_.reserve(blocks_.size() == blocks_.capacity() ? 2 * blocks_.size() + 1 : 0);
    blocks_.push_back(memory().allocate(kBlock));
  }

  ChargedVector<T*> blocks_;
  std::size_t size_ = 0;
};

// An unpickled value. Nodes go by number; one node may be part of several others, but never of itself. Refers to the
// bytes it was made from. Immutable.
class PickleTree {
 public:
  using Node = std::uint32_t;
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 28;
  static constexpr std::uint32_t kMaxDepth = 250;  // whatever the limits say

  // One object, from bytes[0] to its STOP; `first_offset` is the place of bytes[0] in the file, for errors. Throws
  // kCorrupt for what no pickle is (among others bytes that end early, text that is not UTF-8, dicts with a key twice
  // or a key that cannot be one, SETITEMS on what is no mapping), kUnsupported for opcodes we do not know, kLimit for
  // nesting and memory beyond `limits`; a value that contains itself is kUnsupported.
  static PickleTree parse(ConstBytes bytes, const PickleGlobals& globals, const PickleLimits& limits = {},
                          std::uint64_t first_offset = 0);

  Node root() const { return root_; }
  // Bytes of the pickle, with its STOP. The caller says what may follow.
  std::size_t length() const { return length_; }
  std::size_t node_count() const { return nodes_.size(); }
  MemoryBudget& memory() const { return *memory_; }

  PickleKind kind(Node node) const { return nodes_[node].kind(); }
  bool boolean(Node node) const { return nodes_[node].high != 0; }
  std::int64_t integer(Node node) const;
  double number(Node node) const;
  std::string_view text(Node node) const;  // also bytes and big integers
  std::uint16_t global_id(Node node) const { return static_cast<std::uint16_t>(nodes_[node].high); }
  std::string_view global_module(Node node) const { return view(globals_[nodes_[node].low].module); }
  std::string_view global_name(Node node) const { return view(globals_[nodes_[node].low].name); }
  Node persistent_id(Node node) const { return nodes_[node].low; }

  // Elements of a list, tuple or set, keys and values in turn of a dict; of an object, what was put into it.
  std::size_t count(Node node) const;

  // Walks over them in order. Valid as long as the tree.
  class Items {
   public:
    bool next(Node& item);

   private:
    friend class PickleTree;
    const PickleTree* tree_ = nullptr;
    std::uint32_t position_ = 0;  // in the pool
    std::uint32_t left_ = 0;      // in this chunk
    std::uint32_t next_ = 0;      // chunk
  };
  Items items(Node node) const;
  Node item(Node tuple, std::size_t i) const { return pool_[nodes_[tuple].low + i]; }  // of a tuple

  // An object: what would have been called with which arguments (a tuple), and its state (BUILD) when it has one.
  Node callable(Node node) const { return objects_[nodes_[node].low].callable; }
  Node arguments(Node node) const { return objects_[nodes_[node].low].arguments; }
  std::optional<Node> state(Node node) const;
  bool holds_mapping(Node node) const { return objects_[nodes_[node].low].mapping; }

 private:
  friend class PickleMachine;
  friend class PickleChecker;
  friend class PickleParser;
  static constexpr std::uint32_t kNoNode = 0xFFFFFFFF;

  // Values that instructions of one or two bytes push are the same nodes in every tree.
  static constexpr Node kNone = 0;
  static constexpr Node kFalse = 1;
  static constexpr Node kTrue = 2;
  static constexpr Node kEmptyTuple = 3;
  static constexpr Node kSmallInts = 4;  // 0 to 255
  static constexpr std::size_t kConstants = kSmallInts + 256;

  // Kind and length share a word: no length exceeds kMaxBytes.
  struct Cell {
    std::uint32_t head;
    std::uint32_t low;
    std::uint32_t high;
    PickleKind kind() const { return static_cast<PickleKind>(head >> 28); }
    std::uint32_t length() const { return head & 0x0FFFFFFF; }
  };
  // Part of a growing container: a run of the pool.
  struct Chunk {
    std::uint32_t begin;
    std::uint32_t count;
    std::uint32_t next;
  };
  struct Range {
    std::uint32_t begin;
    std::uint32_t length;
  };
  struct Global {
    Range module;
    Range name;
    std::uint32_t uses;
  };
  struct Object {
    Node callable;
    Node arguments;
    Node state;
    std::uint32_t first;  // chunks
    std::uint32_t last;
    std::uint32_t count;
    std::uint8_t uses;
    bool mapping;
  };

  explicit PickleTree(std::shared_ptr<MemoryBudget> memory);
  // Forgets everything but the constants, and keeps the memory.
  void clear();
  Node add(PickleKind kind, std::size_t length, std::uint32_t low, std::uint32_t high) {
    return nodes_.add({static_cast<std::uint32_t>(kind) << 28 | static_cast<std::uint32_t>(length), low, high});
  }
  std::string_view view(Range range) const { return {bytes_ + range.begin, range.length}; }

  std::shared_ptr<MemoryBudget> memory_;  // outlives what follows
  const char* bytes_ = nullptr;
  std::size_t length_ = 0;
  Node root_ = 0;
  PickleArena<Cell> nodes_;
  PickleArena<Node> pool_;
  PickleArena<Chunk> chunks_;
  PickleArena<Global> globals_;
  PickleArena<Object> objects_;
};

// Parses pickles that follow one another, as PickleTree::parse() does, without new memory for each.
class PickleParser {
 public:
  // The globals outlive the parser; `limits.memory` is not null.
  PickleParser(const PickleGlobals& globals, PickleLimits limits);

  // Valid until the next call.
  const PickleTree& parse(ConstBytes bytes, std::uint64_t first_offset = 0);

 private:
  friend class PickleTree;
  const PickleGlobals& globals_;
  const std::uint32_t max_depth_;
  PickleTree tree_;
};

}  // namespace weightstore
