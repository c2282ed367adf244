#pragma once

// One tensor of a file, and the table of all of them.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"
#include "weightstore/quant_scheme.h"
#include "weightstore/text_map.h"

namespace weightstore {

using Shape = std::vector<std::uint64_t>;

// What a file says about one tensor. A value: it copies freely and refers to nothing.
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

// A typed scalar, as Burnpack stores them beside the tensors.
using Scalar = std::variant<std::int64_t, std::uint64_t, double, bool>;

// Named scalars, ascending by name. Values, not a tree, and few words each: a hostile header cannot make them large.
class ScalarMap {
 public:
  // Appends; the caller keeps names unique.
  void add(std::string_view name, Scalar value);
  // Room for this much, so that add() does not grow by doubling.
  void reserve(std::size_t entries, std::size_t name_bytes) {
    entries_.reserve(entries);
    names_.reserve(name_bytes);
  }
  std::size_t size() const { return entries_.size(); }
  std::string_view name(std::size_t i) const;
  const Scalar& value(std::size_t i) const { return entries_[i].value; }
  const Scalar* find(std::string_view name) const;
  void sort();                    // ascending by the names' bytes
  std::size_t duplicate() const;  // after sort(): index of a name that equals the one before it, or size()

 private:
  struct Entry {
    std::uint32_t offset;
    std::uint32_t length;
    Scalar value;
  };
  std::string names_;
  std::vector<Entry> entries_;
};

// The parsed header of a file, or of a set of shards.
//
// Tensors are numbered in the order of their data. The table is built once by a format's reader and immutable (so
// thread-safe) afterwards. It is compact - about 80 bytes a tensor beside the header, nothing allocated per tensor - so
// that opening a file with a million tensors is cheap; a TensorInfo is made when asked for. Names stay where the header
// has them.
class TensorTable {
 public:
  std::size_t size() const { return records_.size(); }

  TensorInfo operator[](std::size_t i) const;
  std::string_view name(std::size_t i) const;
  DType dtype(std::size_t i) const { return records_[i].dtype; }
  Shape shape(std::size_t i) const;
  std::uint32_t source_of(std::size_t i) const { return records_[i].source; }
  std::uint64_t begin(std::size_t i) const { return records_[i].begin; }
  std::uint64_t nbytes(std::size_t i) const { return records_[i].end - records_[i].begin; }

  std::optional<std::size_t> find(std::string_view name) const;
  // As find(), but throws Error(kNotFound) that suggests near names.
  std::size_t at(std::string_view name) const;

  // Tensor numbers in ascending order of the names' bytes. Sorts when called.
  std::vector<std::uint32_t> by_name() const;

  const TextMap& metadata() const { return metadata_; }
  bool has_metadata() const { return has_metadata_; }  // a file may have metadata that is empty
  const ScalarMap& scalars() const { return scalars_; }

  // What the tensors' ranges refer to: one file, or the shards of a set.
  const std::vector<std::shared_ptr<const ByteSource>>& sources() const { return sources_; }

  // Burnpack: the oldest Burn release that reads this file's encodings ("0.19", "0.20", "0.21", "0.22"); else empty.
  const std::string& dialect() const { return dialect_; }

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
  // Keeps the text of the header for the names in it: add() does not copy a name that points into it. Before the first
  // add().
  void keep_text(std::shared_ptr<const char[]> text, std::size_t size);
  std::uint32_t add_source(std::shared_ptr<const ByteSource> source);
  void add(const Row& tensor);
  // Appends all tensors of another table; its sources are added behind ours.
  void append(const TensorTable& other);
  void set_metadata(TextMap metadata);
  void set_scalars(ScalarMap scalars) { scalars_ = std::move(scalars); }
  void set_dialect(std::string dialect) { dialect_ = std::move(dialect); }
  // What the table's arrays take; at most so many bytes more while a tensor is added, and by finish().
  std::size_t memory_bytes() const;
  std::size_t bytes_to_add(const Row& tensor) const;
  std::size_t bytes_to_finish() const;
  // Orders tensors by (source, begin, end), keeping the order of additions among equals, and builds the lookup. Throws
  // Error(kCorrupt) naming a tensor that was added twice.
  void finish();

 private:
  struct Record {
    std::uint64_t begin;
    std::uint64_t end;
    std::uint64_t param_id;
    std::uint32_t name_offset;  // into text_ and, beyond its end, names_
    std::uint32_t name_length;
    std::uint32_t shape_offset;  // into shapes_: `rank` dimensions as LEB128
    std::uint32_t rank;
    std::uint32_t source;
    std::uint32_t quant;  // into quants_
    DType dtype;
    bool has_param_id;
  };

  // The tag is the part of the hash that did not choose the slot: names that differ are told apart without looking at
  // them.
  struct Slot {
    std::uint32_t tag = 0;
    std::uint32_t tensor = kFree;
  };
  static constexpr std::uint32_t kFree = 0xFFFFFFFF;

  std::string_view name(const Record& record) const;
  // Where the bytes of a new name are, for Record::name_offset.
  std::uint32_t place(std::string_view name);
  // The slot that holds the name, or the free one where it belongs.
  std::size_t slot_of(std::string_view name, std::uint64_t hash) const;
  void build_lookup();

  std::vector<Record> records_;
  std::shared_ptr<const char[]> text_;  // of the header
  std::size_t text_size_ = 0;
  std::string names_;  // those that the text does not have as they are
  std::vector<std::uint8_t> shapes_;
  std::vector<std::shared_ptr<const QuantScheme>> quants_;
  std::vector<Slot> slots_;  // open addressing
  std::uint64_t hash_seed_ = 0;
  TextMap metadata_;
  bool has_metadata_ = false;
  ScalarMap scalars_;
  std::vector<std::shared_ptr<const ByteSource>> sources_;
  std::string dialect_;
};

// Bytes a tensor of this type and shape occupies, or nullopt when that overflows 64 bits, ends inside a byte, or is
// kQFloat. Dimensions are multiplied left to right, as SafeTensors' reference does.
std::optional<std::uint64_t> contiguous_bytes(DType dtype, std::span<const std::uint64_t> shape);

}  // namespace weightstore
