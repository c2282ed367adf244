#pragma once

// What the kinds of files have in common: one pickle of the whole object, and storages that it refers to.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/memory_budget.h"
#include "codec/pickle_vm.h"
#include "formats/member_checksums.h"
#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"
#include "weightstore/pytorch.h"

namespace weightstore::pytorch {

using Node = PickleTree::Node;

// The bytes that tensors are views of.
struct Storage {
  std::uint64_t begin = 0;  // in the file
  std::uint64_t nbytes = 0;
  std::optional<DType> dtype;  // none for an untyped or quantized one
  bool quantized = false;
  std::uint32_t number = 0;  // the same for all references to the same bytes
};

// A tensor as the file describes it: elements of a storage, `strides` apart.
struct StoredTensor {
  explicit StoredTensor(MemoryBudget& memory) : shape(memory), strides(memory) {}

  DType dtype = DType::kU8;
  Storage storage;
  std::uint64_t offset = 0;  // in elements, as the strides
  ChargedVector<std::uint64_t> shape;
  ChargedVector<std::uint64_t> strides;
  bool conjugate = false;
  bool negate = false;
};

// Charges a budget, as long as it lives, for all that it keeps.
class Container {
 public:
  virtual ~Container() = default;

  // The object's pickle and its place in the file.
  ConstBytes pickle() const { return std::as_bytes(std::span(pickle_)); }
  std::uint64_t pickle_offset() const { return pickle_offset_; }
  // The pickle is not as the file has it, so that offsets in it say nothing about the file.
  bool is_rewritten() const { return is_rewritten_; }
  bool big_endian() const { return big_endian_; }

  // Finds and checks everything that the tree refers to. Called once, before the following.
  virtual void bind(const PickleTree& tree, const Options& options) = 0;

  MemoryBudget& memory() const { return *memory_; }

  // What a persistent id stands for, or nullptr when it is something else.
  const Storage* storage(Node persistent) const;
  virtual const StoredTensor* tensor(Node) const { return nullptr; }

 protected:
  explicit Container(std::shared_ptr<MemoryBudget> memory)
      : memory_(std::move(memory)), pickle_(*memory_), storages_(*memory_) {}

  const std::shared_ptr<MemoryBudget> memory_;  // outlives what follows
  ChargedString pickle_;
  std::uint64_t pickle_offset_ = 0;
  bool is_rewritten_ = false;
  bool big_endian_ = false;
  ChargedVector<std::pair<Node, Storage>> storages_;  // ascending
};

// Each throws kCorrupt, kLimit or kUnsupported. The source outlives the container.
std::unique_ptr<Container> open_zip(const ByteSource& source, const Limits& limits,
                                    std::shared_ptr<MemoryBudget> memory);
std::unique_ptr<Container> open_stream(const ByteSource& source, const Limits& limits,
                                       std::shared_ptr<MemoryBudget> memory);
std::unique_ptr<Container> open_tar(const ByteSource& source, const Limits& limits,
                                    std::shared_ptr<MemoryBudget> memory);
// `is_text`: of protocol 0 or 1.
std::unique_ptr<Container> open_plain(const ByteSource& source, const Limits& limits,
                                      std::shared_ptr<MemoryBudget> memory, bool is_text);
// Needs no more than kChecksumMemory bytes of memory for a byte of the file.
std::vector<StorageChecksum> read_zip_checksums(const ByteSource& source, const Limits& limits);
MemberChecksums::Member read_zip_pickle_member(const ByteSource& source, const Limits& limits);
inline constexpr std::uint64_t kChecksumMemory = 4;
// The record of the pickle in a ZIP archive; nullopt for the other kinds of files.
std::optional<MemberChecksums::Member> read_pickle_member(const ByteSource& source, const Limits& limits);
// Decides by the first bytes.
std::unique_ptr<Container> open_container(const ByteSource& source, const Limits& limits,
                                          std::shared_ptr<MemoryBudget> memory);

// ---- shared by them ------------------------------------------------------------------------------------------------

// The persistent id of a storage.
struct StorageId {
  std::uint16_t storage_class = 0;  // a global of kind kStorage
  std::string_view key;
  std::uint64_t numel = 0;
  struct View {
    std::uint64_t offset = 0;
    std::uint64_t numel = 0;
  };
  std::optional<View> view;  // streams only
};
// nullopt for the other kind of id, a class given by its source, when `options` says to pass over it.
std::optional<StorageId> parse_storage_id(const PickleTree& tree, Node id, bool stream, const Options& options);

// A storage of this class, without its place.
Storage storage_of_class(std::uint16_t storage_class);

// How many nodes are of the kind kPersistent.
std::size_t persistent_count(const PickleTree& tree);

// An integer that must not be negative.
std::uint64_t natural(const PickleTree& tree, Node node, const char* what);

// Keys of storages and tensors are numbers in decimal, and the folder of an archive has the name of a file. Longer ones
// are refused, because every reference to a storage is looked up.
inline constexpr std::size_t kMaxKeyBytes = 256;

// A tensor's name as an error shows it: the beginning of one that is longer than any model has. Errors are copied, and
// not charged to a budget.
std::string_view shown_name(std::string_view name);

// The pickle at `offset`, read as far as it goes and no further than `limit` bytes.
ChargedString read_pickle(const ByteSource& source, std::uint64_t offset, std::uint64_t end, std::uint64_t limit,
                          MemoryBudget& memory);

}  // namespace weightstore::pytorch
