#pragma once

// Reads tensors from a file, a set of shards, or memory.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "weightstore/byte_source.h"
#include "weightstore/format.h"
#include "weightstore/read_options.h"
#include "weightstore/tensor.h"

namespace weightstore {

class ByteProducer;  // byte_producer.h
struct NameHooks;    // rename.h

// One dimension of a strided selection: `count` elements from `start`, `step` apart (any sign but 0).
struct SliceDim {
  std::uint64_t start = 0;
  std::int64_t step = 1;
  std::uint64_t count = 0;
};

// Immutable and thread-safe. Cheap to copy: copies share the open file and the parsed header.
class Reader {
 public:
  // Opens a SafeTensors, Burnpack or .pt file, or the index of a set of SafeTensors shards. Reads headers only. Throws
  // Error with the path: kIo, kUnsupported (another kind of file, or another than check_name() allows), kCorrupt,
  // kLimit.
  static Reader open(const std::filesystem::path& path, const ReadOptions& options = {});

  // SafeTensors files that belong together, as one: no two may have a tensor of the same name.
  static Reader open_set(std::span<const std::filesystem::path> paths, const ReadOptions& options = {});

  // The same over any source; name() counts as its path. An index cannot be opened this way.
  static Reader open(std::shared_ptr<const ByteSource> source, const ReadOptions& options = {});

  // Static data, such as a file linked into the program: views point into it and it is never copied or freed.
  static Reader from_static(ConstBytes bytes, const ReadOptions& options = {});

  // The same file under other names, without the tensors that are not kept; shares what is open and reads nothing.
  // Metadata and scalars stay, and checksums follow their tensors. Throws Error(kInvalidArgument) naming two tensors
  // that would have the same name.
  Reader renamed(const NameHooks& hooks) const;

  Format format() const;
  const TensorTable& table() const;

  // The tensor's bytes without a copy, kept alive by the view whatever happens to the Reader; nullopt when the source
  // is not in memory or mapped.
  std::optional<SharedBytes> view(std::size_t tensor) const;

  // Copy-on-write memory over the same bytes: may be written to, the file stays as it is. Views of one Reader share
  // their changes. nullopt when the source cannot do that.
  std::optional<SharedMutableBytes> private_view(std::size_t tensor) const;

  // Copies a whole tensor; `out` must have its size.
  void read(std::size_t tensor, MutableBytes out) const;
  // Copies `out.size()` bytes from byte `offset` of a tensor.
  void read_range(std::size_t tensor, std::uint64_t offset, MutableBytes out) const;
  // Copies a strided selection in row-major order, reading little more than it needs. `dims` has one entry a dimension;
  // `out` has the size of the selection. A last dimension of elements smaller than a byte must be taken whole. Asks
  // check_expansion() for the size of the selection.
  void read_slice(std::size_t tensor, std::span<const SliceDim> dims, MutableBytes out) const;

  struct Request {
    std::size_t tensor;
    MutableBytes out;  // of the tensor's size
  };
  // Copies many tensors with several threads. On error the contents of the outputs are undefined.
  void read_many(std::span<const Request> requests, const Progress& progress = {}) const;

  // Copies tensors into new, 64-byte aligned memory that is independent of the file. Small tensors share an allocation
  // (64 MiB at most), which lives as long as any of them. Throws Error(kMemory), before any memory is touched, when all
  // of them together need more than is available.
  std::vector<SharedMutableBytes> load(std::span<const std::size_t> tensors, const Progress& progress = {}) const;

  // The tensor's bytes for a Writer, read as they are written. They are compared with the checksum on their way when
  // the file was opened to be verified: the last fill() of a damaged tensor throws Error(kCorrupt). Keeps the file
  // open.
  std::shared_ptr<ByteProducer> producer(std::size_t tensor) const;

  // The crc32c that the file records for each tensor, by number, however it was opened; empty when it records none. The
  // checksums of a .pt file are about its storages, and not among them. Throws Error(kCorrupt) when the record is
  // damaged.
  std::vector<std::optional<std::uint32_t>> recorded_checksums() const;

  // Compares a tensor's checksum with `bytes`, which somebody read from the sources; once it was right it is not
  // compared again. Passes when the file has no checksum for the tensor, or was opened with Verify::kOff.
  void check(std::size_t tensor, ConstBytes bytes) const;

  // True when the tensor is compared with a checksum as it is read: the file has one, and was opened to be verified.
  bool has_checksum(std::size_t tensor) const;

  // Throws Error(kLimit) when so many bytes of tensors are out of all proportion to the file that holds them: a .pt
  // file may show one byte as a terabyte. load() and read_slice() ask by themselves; ask before you allocate memory for
  // a tensor or a slice.
  void check_expansion(std::uint64_t bytes) const;

  // Compares every checksum the file carries with its bytes; returns how many there were. Throws Error(kCorrupt) naming
  // the first tensor that differs.
  std::size_t verify_all(const Progress& progress = {}) const;

  // The tensors that verify_all() cannot check, because the file has no checksum for them. The tensors of a .pt file
  // share the checksums of their storages; one without bytes needs none.
  std::vector<std::size_t> without_checksum() const;

 private:
  struct State;
  class VerifiedBytes;
  explicit Reader(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  static Reader finish_open(std::shared_ptr<State> state);
  // `fresh` is memory that holds all outputs and has not been written to, if they lie in such.
  void read_all(std::span<const Request> requests, std::span<const MutableBytes> fresh, const Progress& progress) const;
  std::size_t verify_storages(const Progress& progress) const;

  std::shared_ptr<const State> state_;
};

}  // namespace weightstore
