#pragma once

// The description of one tensor of a file, and the table of all tensors.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "weightstore/burn_release.h"
#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"
#include "weightstore/quant_scheme.h"
#include "weightstore/text_map.h"

namespace weightstore {

class TypedMetadata;  // typed_metadata.h

using Shape = std::vector<std::uint64_t>;

// What a file says about one tensor. Copies are independent of the file and of the table.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  std::uint32_t source = 0;  // index into TensorTable::sources()
  std::uint64_t begin = 0;   // byte range [begin, end) of that source
  std::uint64_t end = 0;
  std::optional<std::uint64_t> param_id;     // Burnpack
  std::shared_ptr<const QuantScheme> quant;  // set exactly for kQFloat

  std::uint64_t nbytes() const { return end - begin; }
};

// A typed scalar. Burnpack stores named scalars beside the tensors.
using Scalar = std::variant<std::int64_t, std::uint64_t, double, bool>;

// Named scalars, in the order of add() until sort() is called. An entry takes a few words besides its name, so that a
// hostile header cannot make the map much larger than the header itself.
class ScalarMap {
 public:
  // Appends an entry. The caller makes sure that names are unique; duplicate() helps. Throws Error(kLimit) beyond 4 GiB
  // of names.
  void add(std::string_view name, Scalar value);
  // Makes room for this many entries and bytes of names, so that add() does not grow the memory by doubling.
  void reserve(std::size_t entries, std::size_t name_bytes) {
    entries_.reserve(entries);
    names_.reserve(name_bytes);
  }
  std::size_t size() const { return entries_.size(); }
  std::string_view name(std::size_t i) const;
  const Scalar& value(std::size_t i) const { return entries_[i].value; }
  const Scalar* find(std::string_view name) const;  // null for an unknown name; takes linear time
  // Sorts the entries by the bytes of their names.
  void sort();
  // After sort(): the index of a name that equals the name before it, or size() when all names differ.
  std::size_t duplicate() const;

 private:
  struct Entry {
    std::uint32_t offset;
    std::uint32_t length;
    Scalar value;
  };
  std::string names_;
  std::vector<Entry> entries_;
};

// A value of a file that the reader did not read, because it is neither a tensor of a type that the library has nor
// plain data of a class that the library knows.
struct LeftOut {
  std::string name;    // where the value is: as the name of a tensor. Several values may be at one place
  std::string type;    // the class or function that the file names, such as "mine.Thing"
  std::string reason;  // what the value is, and perhaps what to save instead
};

// The parsed header of a file, or of a set of shards.
//
// Tensors are numbered in the order of their data. A format's reader builds the table. Afterwards the table does not
// change, so any number of threads may use it.
//
// A million tensors are cheap: each takes its name and about 23 bytes, and no allocation of its own. What many tensors
// have in common (type, shape, source) is stored once. Each call of operator[] makes a new TensorInfo.
class TensorTable {
 public:
  std::size_t size() const { return records_.size(); }

  TensorInfo operator[](std::size_t i) const;
  std::string_view name(std::size_t i) const;
  DType dtype(std::size_t i) const { return kind_of(i).dtype; }
  Shape shape(std::size_t i) const;
  std::uint32_t source_of(std::size_t i) const { return kind_of(i).source; }
  std::uint64_t begin(std::size_t i) const { return records_[i].begin; }
  std::uint64_t nbytes(std::size_t i) const { return kind_of(i).nbytes; }

  std::optional<std::size_t> find(std::string_view name) const;
  // As find(), but throws Error(kUnsupported) with the reason for a name in left_out(), and Error(kNotFound) for any
  // other unknown name. The message suggests a similar name.
  std::size_t at(std::string_view name) const;

  // The numbers of all tensors, sorted by the bytes of their names. Every call sorts again.
  std::vector<std::uint32_t> by_name() const;

  const TextMap& metadata() const { return metadata_; }
  bool has_metadata() const { return has_metadata_; }  // true also for metadata without entries
  // For formats whose metadata are not only text (GGUF): all entries with their types. metadata() then has the scalars
  // among them as text. Null for formats that store only text.
  const std::shared_ptr<const TypedMetadata>& typed_metadata() const { return typed_metadata_; }
  const ScalarMap& scalars() const { return scalars_; }

  // What the reader left out of the file, in the order of the file. Only .pt and .npz files opened with Opaque::kSkip
  // have such values.
  const std::vector<LeftOut>& left_out() const { return left_out_; }

  // The sources that hold the tensors: the file or the shards of a set, and sources that make the bytes of a tensor
  // while they are read (strided, inflated).
  const std::vector<std::shared_ptr<const ByteSource>>& sources() const { return sources_; }

  // For Burnpack, the oldest Burn release that can read this file ("0.19", "0.20", "0.21" or "0.22"). Empty for other
  // formats.
  const std::string& dialect() const { return dialect_; }
  // For Burnpack, the Burn release that the file was written for, if its metadata or its contents tell.
  std::optional<BurnRelease> burn_release() const { return burn_release_; }

  // ---- for format readers --------------------------------------------------------------------------------------
  struct Row {
    std::string_view name;
    DType dtype = DType::kU8;
    std::span<const std::uint64_t> shape;
    std::uint32_t source = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::optional<std::uint64_t> param_id;
    std::shared_ptr<const QuantScheme> quant;
  };
  // Makes room for the tensors of a header of this many bytes, so that add() need not grow the table. Memory that is
  // not needed is never touched.
  void expect_header(std::size_t bytes);
  std::uint32_t add_source(std::shared_ptr<const ByteSource> source);
  // Makes room for this many tensors, so that add() does not grow the memory by doubling.
  void reserve(std::size_t tensors) { records_.reserve(tensors); }
  void add(const Row& tensor);
  // Adds tensor `i` of this table, which is not finished yet, under another name. Takes the same time for every tensor.
  void add_again(std::string_view name, std::size_t i);
  // Appends the sources, all tensors and left_out() of another table.
  void append(const TensorTable& other);
  void set_metadata(TextMap metadata);
  void set_typed_metadata(std::shared_ptr<const TypedMetadata> metadata) { typed_metadata_ = std::move(metadata); }
  void set_scalars(ScalarMap scalars) { scalars_ = std::move(scalars); }
  void set_dialect(std::string dialect) { dialect_ = std::move(dialect); }
  void set_left_out(std::vector<LeftOut> values) { left_out_ = std::move(values); }
  void set_burn_release(std::optional<BurnRelease> release) { burn_release_ = release; }
  // For readers with a memory budget: the size of the arrays of this table now, and an upper bound of the extra memory
  // that add(tensor), add_again(name, i) or finish() will allocate.
  std::size_t memory_bytes() const;
  std::size_t bytes_to_add(const Row& tensor) const;
  std::size_t bytes_to_add_again(std::string_view name) const;
  std::size_t bytes_to_finish() const;
  // Sorts the tensors by (source, begin, end) and builds the lookup by name. Tensors with equal keys keep the order in
  // which they were added. Throws Error(kCorrupt) that names a tensor which was added twice.
  void finish();

 private:
  struct Record {
    std::uint64_t begin;
    std::uint32_t name;  // offset into names_
    std::uint32_t kind;  // index of kinds_
  };

  // What tensors can have in common.
  struct Kind {
    std::uint64_t nbytes;
    std::uint32_t shape_offset;  // into shapes_: `rank` dimensions as LEB128
    std::uint32_t rank;
    std::uint32_t source;
    std::uint32_t quant;  // into quants_
    DType dtype;
  };

  const Kind& kind_of(std::size_t i) const { return kinds_[records_[i].kind]; }
  std::string_view name(const Record& record) const;
  std::optional<std::uint64_t> param_id(const Record& record) const;
  // Throws Error(kLimit) when the arenas have no room for a tensor of this name and rank.
  void require_room(std::string_view name, std::size_t rank) const;
  std::uint32_t add_name(std::string_view name, std::optional<std::uint64_t> param_id);
  std::uint32_t add_kind(const Row& tensor);
  bool is_of_kind(const Row& tensor, std::uint32_t quant, const Kind& kind) const;
  // The position of the name in the lookup, or the free position where it belongs.
  std::size_t cell_of(std::string_view name, std::uint64_t hash) const;
  void build_lookup();

  std::vector<Record> records_;
  std::vector<char> names_;  // of all tensors; tensor_table.cc describes an entry
  std::vector<Kind> kinds_;
  std::vector<std::uint8_t> shapes_;
  std::vector<std::shared_ptr<const QuantScheme>> quants_;
  std::vector<std::uint32_t> recent_kinds_;  // until finish(): numbers of kinds by a hash of them, or kNone
  // The lookup by name: open addressing. A cell is the number of a tensor, with a part of the hash of its name in the
  // upper bits: two names with different parts differ, so most comparisons need not look at the names. Or it is kNone.
  std::vector<std::uint32_t> cells_;
  unsigned number_bits_ = 0;  // of a cell
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  std::uint64_t hash_seed_ = 0;
  TextMap metadata_;
  bool has_metadata_ = false;
  std::shared_ptr<const TypedMetadata> typed_metadata_;
  ScalarMap scalars_;
  std::vector<std::shared_ptr<const ByteSource>> sources_;
  std::string dialect_;
  std::vector<LeftOut> left_out_;
  std::optional<BurnRelease> burn_release_;
};

// The size in bytes of a tensor of this type and shape. nullopt when the size overflows 64 bits, when it is not a whole
// number of bytes or a row is not a whole number of blocks, and for kQFloat. Dimensions are multiplied from left to
// right, as in the reference implementation of SafeTensors, so that both overflow for the same shapes.
std::optional<std::uint64_t> contiguous_bytes(DType dtype, std::span<const std::uint64_t> shape);

}  // namespace weightstore
