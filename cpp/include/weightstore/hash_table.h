#pragma once

// An embedding table without collisions: 64-bit ids, each with one row in every slot.

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

// What a new row starts with: a pure function of (seed, id, element), the same on every shard and in every run, so that
// a row that was erased and comes back, or that is created after resharding, starts as it did before.
struct Initializer {
  enum class Kind : std::uint8_t {
    kConstant,         // a
    kUniform,          // a <= x < b; the number nearest to a where the type has none between them
    kNormal,           // mean a, standard deviation b
    kTruncatedNormal,  // the same, within two standard deviations of the mean
  };
  Kind kind = Kind::kConstant;
  double a = 0;
  double b = 0;
  std::uint64_t seed = 0;
};

// "zeros", "constant", "uniform", "normal", "truncated_normal"; Error(kInvalidArgument) for others.
Initializer::Kind initializer_kind(std::string_view name);

// Coalesced tables: several children share one table, and the upper 12 bits of an id tell whose it is.
inline constexpr unsigned kChildShift = 52;
inline constexpr std::uint64_t kChildIdMask = (std::uint64_t{1} << kChildShift) - 1;
inline constexpr std::size_t kMaxChildren = 4094;

constexpr std::int64_t coalesced_id(std::size_t child, std::int64_t id) {
  const std::uint64_t own = static_cast<std::uint64_t>(id) & kChildIdMask;
  return static_cast<std::int64_t>(own | (std::uint64_t{child} << kChildShift));
}
constexpr std::size_t child_of(std::int64_t id) { return static_cast<std::uint64_t>(id) >> kChildShift; }

// The interval of shard `index` of `count`: sizes differ by at most one, the larger ones come first.
BucketRange shard_slice(std::uint64_t index, std::uint64_t count, std::uint64_t size = 65536);

struct TableOptions {
  std::string name;
  Shape shape;  // of one embedding; no zeros
  DType dtype = DType::kF32;
  BucketRange slice;
  Initializer initializer;
  // Names of the tables in this one. Empty, or the table's own name alone: not coalesced.
  std::vector<std::string> children;
  std::uint32_t page_rows = 4096;  // a power of two; pages of long rows have fewer, so that they stay small
  std::uint32_t stripes = 64;      // at most; rounded down to a power of two and to the buckets of the slice
  unsigned threads = 0;            // that a large batch may use; 0: as many as there are processors
};

// Thread-safe: any number of threads may call anything at once. A batch is seen by snapshot() whole or not at all; by
// other batches stripe by stripe.
//
// Rows are spread over stripes: contiguous ranges of the slice's buckets, each with its own lock, index, pages and free
// list. A row's bytes lie in pages of the slot, in the order in which rows were created; erased rows are reused.
//
// `ids` and the bytes beside them are in the same order: element i of a batch has bytes [i * row_bytes, ...). A buffer
// of another size, or a null pointer with a size, is Error(kInvalidArgument). Whatever inserts refuses a batch with an
// id outside of the table's slice, or of a child that does not exist, before anything is changed; elsewhere such ids
// are just unknown.
//
// fork(2) waits until no call is inside of any table, so that the child has every table as it was between two calls,
// and can use it. It waits for one batch at most.
class HashTable {
 public:
  // Slot 0 is `embedding`. Throws Error(kInvalidArgument) for options that make no sense.
  explicit HashTable(TableOptions options);
  ~HashTable();
  HashTable(const HashTable&) = delete;
  HashTable& operator=(const HashTable&) = delete;

  const std::string& name() const;
  const BucketRange& slice() const;
  bool coalesced() const;
  const std::vector<std::string>& children() const;  // one, unless coalesced
  std::vector<SlotInfo> slots() const;
  std::optional<std::size_t> find_slot(std::string_view slot) const;
  std::size_t slot_index(std::string_view slot) const;  // as find_slot(), but throws Error(kNotFound) listing the slots
  std::size_t stripe_count() const;

  // Adds a slot, filled for the rows that are there already, and returns its number. Not "id", not twice, no '@' in its
  // name. Types are those of SafeTensors that fill whole bytes; random initializers are for F16, BF16, F32 and F64, and
  // other floats and complex numbers start with 0. Numbers that the type does not have are Error(kInvalidArgument).
  // Waits for batches.
  std::size_t add_slot(std::string name, Shape shape, DType dtype, const Initializer& initializer = {});
  // For rows created from now on.
  void set_initializer(std::size_t slot, const Initializer& initializer);

  // Rows of slot 0 into `embeddings`, and row numbers into `rows`; std::nullopt: not wanted. Unknown ids are created
  // when `insert`, else they are row -1 and zeros.
  void lookup(std::span<const std::int64_t> ids, bool insert, std::optional<std::span<std::int64_t>> rows,
              std::optional<MutableBytes> embeddings);
  // Creates or overwrites. Of equal ids in one batch the last wins; they get one row. Other slots of new rows start as
  // their initializers say.
  void insert(std::span<const std::int64_t> ids, ConstBytes embeddings);
  // Returns how many rows there were. Equal ids count once.
  std::size_t erase(std::span<const std::int64_t> ids);
  // 1 or 0 for each.
  void contains(std::span<const std::int64_t> ids, std::span<std::uint8_t> found) const;

  // Unknown ids: zeros.
  void read_slot(std::size_t slot, std::span<const std::int64_t> ids, MutableBytes values) const;
  // Unknown ids are passed over. Returns how many of `ids` were known.
  std::size_t write_slot(std::size_t slot, std::span<const std::int64_t> ids, ConstBytes values);

  // The same by the row numbers that lookup() gave. Rows that are not there any more, and -1, count as unknown; a
  // number whose row was erased may have been given to another id since.
  void read_slot_rows(std::size_t slot, std::span<const std::int64_t> rows, MutableBytes values) const;
  std::size_t write_slot_rows(std::size_t slot, std::span<const std::int64_t> rows, ConstBytes values);

  // Rows of a checkpoint: inserts ids once and copies all slots given. `ids` are as a file has them, without the
  // child's bits; those outside of the table's slice are passed over. A coalesced table throws Error(kInvalidArgument)
  // for an id of more than 52 bits, before anything is changed. Slots not given keep their values, or start as their
  // initializers say in new rows. Runs on the calling thread alone: loaders call it from several. Returns the number of
  // ids taken.
  struct SlotBytes {
    std::size_t slot;
    ConstBytes bytes;
  };
  std::size_t load_rows(std::size_t child, std::span<const std::int64_t> ids, std::span<const SlotBytes> slots);

  // In the order of stripes and rows.
  std::vector<std::int64_t> ids() const;
  std::uint64_t size() const;
  void clear();
  // Room for so many rows in all, so that the index need not grow on the way; it takes memory as it is used. Rows
  // themselves are allocated by page. Error(kLimit) when that is too much: then nothing has changed.
  void reserve(std::uint64_t rows);

  // Notes that ids were used in a step: the step in the slot `version`, the number of touches in `freq`, both I64 [].
  // The slots are added when first needed (or before, by add_slot(), for a table to be loaded into); rows never touched
  // have 0 in both. Unknown ids are passed over. Returns how many were known.
  std::size_t touch(std::span<const std::int64_t> ids, std::int64_t step);
  // Erase rows last touched before `step`, or touched less than `count` times. Return how many: none while the slots
  // are not there.
  std::uint64_t evict_older(std::int64_t step);
  std::uint64_t evict_rarer(std::int64_t count);

  // Time as this table counts it: begins with 1, and every snapshot() begins a new epoch.
  std::uint64_t epoch() const;
  // Ids whose rows were created or written in `epoch` or later, and ids erased since and not there now. With `epoch`
  // from TableSnapshot::epoch(): what the snapshot does not know, and ids that it need not know. The table remembers
  // erasures for a while, about as many as it has rows; Error(kInvalidArgument) when those of `epoch` are forgotten:
  // save everything then.
  struct Changes {
    std::vector<std::int64_t> changed;
    std::vector<std::int64_t> erased;
  };
  Changes changed_since(std::uint64_t epoch) const;

  // The table at this instant: waits for running batches, pins all pages (no copy; milliseconds) and begins a new
  // epoch. From then on the first write to a pinned page copies it, so that extra memory is what is written to
  // meanwhile.
  std::shared_ptr<const TableSnapshot> snapshot();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weightstore
