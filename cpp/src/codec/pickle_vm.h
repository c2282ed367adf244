#pragma once

// Reads pickles of protocols 2 to 5 as data. A pickle is a program for a stack machine. This machine builds a tree of
// what the program describes; it imports nothing and calls nothing. It charges everything that it allocates to a
// MemoryBudget.

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
  kBytes,  // also a string of Python 2 that is not UTF-8
  kTuple,
  kList,
  kDict,
  kSet,
  kFrozenSet,
  kGlobal,      // a name that Python's unpickler would import
  kObject,      // an object that Python's unpickler would create by a call
  kPersistent,  // a reference to an object outside the pickle, such as a storage
};

// A global that the pickle may use, and the uses that are allowed. All other uses are refused.
struct PickleGlobal {
  static constexpr std::uint8_t kCall = 1;     // REDUCE
  static constexpr std::uint8_t kNew = 2;      // NEWOBJ
  static constexpr std::uint8_t kMapping = 4;  // the result takes SETITEMS
  static constexpr std::uint8_t kList = 8;     // the result takes APPENDS and ADDITEMS
  static constexpr std::uint8_t kState = 16;   // the result takes BUILD
  static constexpr std::uint8_t kAll = 31;
  std::uint16_t id = 0;   // the number that the caller of parse() gives it
  std::uint8_t uses = 0;  // a combination of the constants above
};

// Decides which globals a pickle may use. lookup() throws for a global that is refused.
class PickleGlobals {
 public:
  virtual ~PickleGlobals() = default;
  virtual PickleGlobal lookup(std::string_view module, std::string_view name) const = 0;
};

struct PickleLimits {
  std::uint32_t depth = 128;  // how deeply values may be nested; at most PickleTree::kMaxDepth counts
  // The tree charges this budget as long as it lives. Null: parse() makes a new budget for the size of the pickle.
  std::shared_ptr<MemoryBudget> memory = nullptr;
};

// An array that grows by blocks. Elements never move, so growing does not need the memory of two arrays at once.
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
  // Removes all elements after the first `size`, and keeps the memory for new ones.
  void truncate(std::size_t size) { size_ = size; }
  T& operator[](std::size_t i) { return blocks_[i / kBlock][i % kBlock]; }
  const T& operator[](std::size_t i) const { return blocks_[i / kBlock][i % kBlock]; }
  std::size_t size() const { return size_; }

 private:
  static_assert(std::is_trivially_copyable_v<T>);
  static constexpr std::size_t kBlock = 64;  // elements per block; few, because most pickles are small

  Charged<T> memory() const { return blocks_.get_allocator(); }
  void grow() {
    blocks_.reserve(blocks_.size() == blocks_.capacity() ? 2 * blocks_.size() + 1 : 0);
    blocks_.push_back(memory().allocate(kBlock));
  }

  ChargedVector<T*> blocks_;
  std::size_t size_ = 0;
};

// The value that a pickle describes, as a tree of numbered nodes. Several nodes may share a child, but no node contains
// itself. The bytes of the pickle must outlive the tree. Immutable.
class PickleTree {
 public:
  using Node = std::uint32_t;
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 28;
  static constexpr std::uint32_t kMaxDepth = 250;  // PickleLimits cannot raise this

  // Reads one pickle, from bytes[0] to its STOP. `first_offset` is the offset of bytes[0] in the file, for errors.
  // Throws Error:
  //  - kCorrupt for malformed pickles, for example when the bytes end too early, text is not UTF-8, a dict has
  //    duplicate or unhashable keys, or SETITEMS is applied to a value that is not a mapping;
  //  - kUnsupported for other protocols, unknown opcodes, and values that contain themselves;
  //  - kLimit for nesting and memory beyond `limits`, and for more than kMaxBytes.
  static PickleTree parse(ConstBytes bytes, const PickleGlobals& globals, const PickleLimits& limits = {},
                          std::uint64_t first_offset = 0);

  Node root() const { return root_; }
  // The size of the pickle, including its STOP. Bytes after it are not read; the caller checks them.
  std::size_t length() const { return length_; }
  std::size_t node_count() const { return nodes_.size(); }
  MemoryBudget& memory() const { return *memory_; }

  PickleKind kind(Node node) const { return nodes_[node].kind(); }
  bool boolean(Node node) const { return nodes_[node].high != 0; }
  std::int64_t integer(Node node) const;
  double number(Node node) const;
  std::string_view text(Node node) const;  // of text, bytes and big integers
  std::uint16_t global_id(Node node) const { return static_cast<std::uint16_t>(nodes_[node].high); }
  std::string_view global_module(Node node) const { return view(globals_[nodes_[node].low].module); }
  std::string_view global_name(Node node) const { return view(globals_[nodes_[node].low].name); }
  Node persistent_id(Node node) const { return nodes_[node].low; }

  // The number of items of a node. The items of a list, tuple or set are its elements. The items of a dict are its keys
  // and values in turn. The items of an object are what APPENDS, ADDITEMS or SETITEMS put into it.
  std::size_t count(Node node) const;

  // Iterates over the items of a node. The tree must outlive it.
  class Items {
   public:
    bool next(Node& item);

   private:
    friend class PickleTree;
    const PickleTree* tree_ = nullptr;
    std::uint32_t position_ = 0;  // of the next item in pool_
    std::uint32_t left_ = 0;      // items left in this chunk
    std::uint32_t next_ = 0;      // the next chunk
  };
  Items items(Node node) const;
  Node item(Node tuple, std::size_t i) const { return pool_[nodes_[tuple].low + i]; }  // of a tuple

  // For an object: what Python's unpickler would call, the tuple of arguments, and the state that BUILD sets, if any.
  Node callable(Node node) const { return objects_[nodes_[node].low].callable; }
  Node arguments(Node node) const { return objects_[nodes_[node].low].arguments; }
  std::optional<Node> state(Node node) const;
  // True for an object whose items are keys and values.
  bool holds_mapping(Node node) const { return objects_[nodes_[node].low].mapping; }

 private:
  friend class PickleMachine;
  friend class PickleChecker;
  friend class PickleParser;
  static constexpr std::uint32_t kNoNode = 0xFFFFFFFF;

  // Constant nodes that every tree has, for values that an instruction of one or two bytes pushes. A small pickle can
  // push them very often, and no push needs memory for a node.
  static constexpr Node kNone = 0;
  static constexpr Node kFalse = 1;
  static constexpr Node kTrue = 2;
  static constexpr Node kEmptyTuple = 3;
  static constexpr Node kSmallInts = 4;  // 0 to 255
  static constexpr std::size_t kConstants = kSmallInts + 256;

  // A node. `head` is the kind (4 bits) and the length (28 bits): no length exceeds kMaxBytes.
  struct Cell {
    std::uint32_t head;
    std::uint32_t low;
    std::uint32_t high;
    PickleKind kind() const { return static_cast<PickleKind>(head >> 28); }
    std::uint32_t length() const { return head & 0x0FFFFFFF; }
  };
  // Some items of a container that grows: `count` items of pool_ from `begin` on, and the number of the next chunk.
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
    std::uint32_t first;  // the first and the last chunk of its items
    std::uint32_t last;
    std::uint32_t count;
    std::uint8_t uses;
    bool mapping;
  };

  explicit PickleTree(std::shared_ptr<MemoryBudget> memory);
  // Removes all nodes except the constants, and keeps the memory for the next pickle.
  void clear();
  Node add(PickleKind kind, std::size_t length, std::uint32_t low, std::uint32_t high) {
    return nodes_.add({static_cast<std::uint32_t>(kind) << 28 | static_cast<std::uint32_t>(length), low, high});
  }
  std::string_view view(Range range) const { return {bytes_ + range.begin, range.length}; }

  std::shared_ptr<MemoryBudget> memory_;  // declared first, because the arenas below use it until they are destroyed
  const char* bytes_ = nullptr;
  std::size_t length_ = 0;
  Node root_ = 0;
  PickleArena<Cell> nodes_;
  PickleArena<Node> pool_;
  PickleArena<Chunk> chunks_;
  PickleArena<Global> globals_;
  PickleArena<Object> objects_;
};

// Parses one pickle after another, as PickleTree::parse() does, and reuses the memory of the tree.
class PickleParser {
 public:
  // `globals` must outlive the parser. `limits.memory` must not be null.
  PickleParser(const PickleGlobals& globals, PickleLimits limits);

  // The result is valid until the next call.
  const PickleTree& parse(ConstBytes bytes, std::uint64_t first_offset = 0);

 private:
  friend class PickleTree;
  const PickleGlobals& globals_;
  const std::uint32_t max_depth_;
  PickleTree tree_;
};

}  // namespace weightstore
