#pragma once

// An embedding table without collisions: every 64-bit id has its own row in every slot.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"
#include "weightstore/table_snapshot.h"
#include "weightstore/tensor.h"

namespace weightstore {

// The values of a new row: a pure function of seed, id and element. They are the same on every shard and in every run,
// so that a row that was erased and is created again, or that is created after resharding, starts with the same values.
struct Initializer {
  enum class Kind : std::uint8_t {
    kConstant,         // a
    kUniform,          // a <= x < b; if the type has no number in between, the number nearest to a
    kNormal,           // mean a, standard deviation b
    kTruncatedNormal,  // as kNormal, within two standard deviations of the mean
  };
  Kind kind = Kind::kConstant;
  double a = 0;
  double b = 0;
  std::uint64_t seed = 0;
};

// "zeros", "constant", "uniform", "normal", "truncated_normal"; Error(kInvalidArgument) for others.
Initializer::Kind initializer_kind(std::string_view name);

// Coalesced tables: several tables, the children, share one. The upper 12 bits of an id are the number of its child.
inline constexpr unsigned kChildShift = 52;
inline constexpr std::uint64_t kChildIdMask = (std::uint64_t{1} << kChildShift) - 1;
inline constexpr std::size_t kMaxChildren = 4094;

constexpr std::int64_t coalesced_id(std::size_t child, std::int64_t id) {
  const std::uint64_t own = static_cast<std::uint64_t>(id) & kChildIdMask;
  return static_cast<std::int64_t>(own | (std::uint64_t{child} << kChildShift));
}
constexpr std::size_t child_of(std::int64_t id) { return static_cast<std::uint64_t>(id) >> kChildShift; }

// The buckets of shard `index` of `count`. The sizes of the ranges differ by at most one; the larger ones come first.
BucketRange shard_buckets(std::uint64_t index, std::uint64_t count, std::uint64_t size = 65536);

struct TableOptions {
  std::string name;
  Shape shape;  // of one embedding, without zeros
  DType dtype = DType::kF32;
  BucketRange buckets;
  Initializer initializer;
  // The names of the children. A table without children, or whose only child has the name of the table, is not
  // coalesced.
  std::vector<std::string> children;
  std::uint32_t page_rows = 4096;  // a power of two; pages of long rows have fewer rows
  std::uint32_t stripes = 64;      // at most; a power of two, and no more than there are buckets
  unsigned threads = 0;            // for a large batch; 0: one for each processor
};

// Thread-safe. snapshot() sees a batch whole or not at all. Other batches may see it stripe by stripe.
//
// Rows are spread over stripes: contiguous ranges of buckets, each with its own lock, index, pages and free list. The
// values of a slot lie in pages, in the order in which rows were created. Erased rows are reused.
//
// `ids` and the buffers beside them have the same order: element i of a batch has the bytes [i * row_bytes, ...).
// Error(kInvalidArgument) for a buffer of another size, and for a null pointer with a size. Functions that insert rows
// refuse a batch with an id outside the table's buckets, or of a child that does not exist, before they change
// anything. For the other functions such ids are unknown ids.
//
// fork(2) waits until no thread is in a call of any table, for one batch at most. The child has every table as it was
// between two calls, and can use it.
class HashTable {
 public:
  // Slot 0 is `embedding`. Throws Error(kInvalidArgument) for invalid options.
  explicit HashTable(TableOptions options);
  ~HashTable();
  HashTable(const HashTable&) = delete;
  HashTable& operator=(const HashTable&) = delete;

  const std::string& name() const;
  const BucketRange& buckets() const;
  bool coalesced() const;
  const std::vector<std::string>& children() const;  // one, unless the table is coalesced
  std::vector<SlotInfo> slots() const;
  std::optional<std::size_t> find_slot(std::string_view slot) const;
  std::size_t slot_index(std::string_view slot) const;  // throws Error(kNotFound) that lists the slots
  std::size_t stripe_count() const;

  // Adds a slot, fills it for existing rows, and returns its number. Waits for running batches. The name must be new,
  // not "id", and without '@'. The type must be one of SafeTensors with whole bytes. Random initializers work for F16,
  // BF16, F32 and F64; other floats and complex numbers must start with 0. Error(kInvalidArgument) for a value that the
  // type cannot represent.
  std::size_t add_slot(std::string name, Shape shape, DType dtype, const Initializer& initializer = {});
  // For rows that are created from now on.
  void set_initializer(std::size_t slot, const Initializer& initializer);

  // Copies the rows of slot 0 to `embeddings`, and the row numbers to `rows`; pass std::nullopt for either to leave it
  // out. With `insert`, unknown ids get new rows; otherwise their row is -1 and their embedding is zeros.
  void lookup(std::span<const std::int64_t> ids, bool insert, std::optional<std::span<std::int64_t>> rows,
              std::optional<MutableBytes> embeddings);
  // Creates rows, or overwrites the embeddings of existing ones. Equal ids in one batch get one row with the last
  // value. The other slots of new rows get the values of their initializers.
  void insert(std::span<const std::int64_t> ids, ConstBytes embeddings);
  // Returns the number of rows that were erased. Equal ids count once.
  std::size_t erase(std::span<const std::int64_t> ids);
  // Writes 1 for each known id and 0 for each unknown one.
  void contains(std::span<const std::int64_t> ids, std::span<std::uint8_t> found) const;

  // Unknown ids read as zeros.
  void read_slot(std::size_t slot, std::span<const std::int64_t> ids, MutableBytes values) const;
  // Ignores unknown ids. Returns the number of known ones.
  std::size_t write_slot(std::size_t slot, std::span<const std::int64_t> ids, ConstBytes values);

  // As above, by the row numbers that lookup() gave. -1 and numbers of erased rows count as unknown. The number of an
  // erased row may belong to another id later.
  void read_slot_rows(std::size_t slot, std::span<const std::int64_t> rows, MutableBytes values) const;
  std::size_t write_slot_rows(std::size_t slot, std::span<const std::int64_t> rows, ConstBytes values);

  // Inserts rows of a checkpoint, with the values of several slots at once. `ids` are as in a file, without the bits of
  // the child. Skips ids outside the table's buckets, and returns the number of ids that were not skipped. A coalesced
  // table throws Error(kInvalidArgument) for an id of more than 52 bits, before anything is changed. Slots that are not
  // given keep their values; in new rows they get the values of their initializers. Runs on the calling thread alone;
  // loaders call it from several threads.
  struct SlotBytes {
    std::size_t slot;
    ConstBytes bytes;
  };
  std::size_t load_rows(std::size_t child, std::span<const std::int64_t> ids, std::span<const SlotBytes> slots);

  // In the order of stripes and row numbers.
  std::vector<std::int64_t> ids() const;
  std::uint64_t size() const;
  void clear();
  // Makes room in the index for this many rows in all, so that the index does not grow later. The memory is used as
  // rows come; rows themselves are allocated by page. Error(kLimit) if there is not enough memory; then nothing has
  // changed.
  void reserve(std::uint64_t rows);

  // Records that ids were used in a step: the slot `version` gets the step, and the slot `freq` counts the calls. Both
  // are I64 []. touch() adds the slots when they are missing; call add_slot() before to load them from a checkpoint.
  // Rows that were never touched have 0 in both. Ignores unknown ids. Returns the number of known ones.
  std::size_t touch(std::span<const std::int64_t> ids, std::int64_t step);
  // Erase the rows that were last touched before `step`, or touched fewer than `count` times. Return the number of
  // erased rows: 0 if the slots do not exist.
  std::uint64_t evict_older(std::int64_t step);
  std::uint64_t evict_rarer(std::int64_t count);

  // The epoch of the table: 1 at first; every snapshot() begins a new one.
  std::uint64_t epoch() const;
  // The ids whose rows were created or written in `epoch` or later, and the ids that were erased since then and do not
  // exist now. With `epoch` from TableSnapshot::epoch() this is the difference to the snapshot. The table remembers
  // about as many erasures as it has rows. Error(kInvalidArgument) when it no longer remembers those of `epoch`: save
  // the whole table then.
  struct Changes {
    std::vector<std::int64_t> changed;
    std::vector<std::int64_t> erased;
  };
  Changes changed_since(std::uint64_t epoch) const;

  // The table at this instant. Waits for running batches, pins all pages without copying them (milliseconds), and
  // begins a new epoch. Later, the first write to a pinned page copies the page: the extra memory is that of the pages
  // that are written to while the snapshot exists.
  std::shared_ptr<const TableSnapshot> snapshot();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weightstore
