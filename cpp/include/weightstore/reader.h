#pragma once

// Reads tensors from a file, from a set of shards, or from memory.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/byte_source.h"
#include "weightstore/format.h"
#include "weightstore/read_options.h"
#include "weightstore/tensor.h"

namespace weightstore {

class AssembledTensors;  // makes Readers of checkpoints
class BoxedTensors;      // the same, of tensors that lie in boxes
class ByteProducer;      // byte_producer.h
struct NameHooks;        // rename.h

// One dimension of a strided selection: `count` elements, the first at `start`, each `step` after the one before it.
// `step` may be negative but not 0.
struct SliceDim {
  std::uint64_t start = 0;
  std::int64_t step = 1;
  std::uint64_t count = 0;
};

// An open file whose header has been parsed. Immutable and thread-safe. Cheap to copy: copies share the open file and
// the header.
class Reader {
 public:
  // Opens a file of any format that the library knows (format.h), or the index of a set of shards: SafeTensors files,
  // or files of torch.save() (pytorch_model.bin.index.json), whose format() is kPytorch. For a part of a split GGUF
  // model (`-00001-of-00003.gguf`), opens all parts as one model. Reads only headers, unless
  // options.verify is Verify::kFull. Throws Error with the path: kIo; kUnsupported when no format is recognised or
  // check_name() refuses the name; kCorrupt; kLimit; kConflict when other processes keep replacing the set.
  static Reader open(const std::filesystem::path& path, const ReadOptions& options = {});

  // Opens several SafeTensors files as one model. No two files may have a tensor of the same name.
  static Reader open_set(std::span<const std::filesystem::path> paths, const ReadOptions& options = {});

  // Opens a file in any source. check_name() and errors use source->name() as the path. An index and a part of a split
  // model cannot be opened this way, because the other files are found by the path.
  static Reader open(std::shared_ptr<const ByteSource> source, const ReadOptions& options = {});

  // Opens a file in static memory, for example one that is linked into the program. Views point into that memory, which
  // must stay valid.
  static Reader from_static(ConstBytes bytes, const ReadOptions& options = {});

  // The same file with other names for its tensors, and without the tensors that the hooks do not keep. Shares the open
  // file and reads no data. Metadata and scalars stay as they are; the checksums are recorded under the new names.
  // Throws Error(kInvalidArgument) that names two tensors which would get the same name.
  Reader renamed(const NameHooks& hooks) const;

  Format format() const;
  const TensorTable& table() const;
  // For messages: the path of the file, or ByteSource::name() of another source. Empty for a set of several files, but
  // the path of a checkpoint with tables.
  std::string file_name() const;

  // The bytes of a tensor without a copy. The view keeps them alive, even after the Reader is destroyed. nullopt when
  // the source is neither memory nor a mapped file, or when the tensor's elements have to be gathered or inflated.
  std::optional<SharedBytes> view(std::size_t tensor) const;

  // The bytes of a tensor as copy-on-write memory: the caller may write to it, and the file does not change. All
  // private views of one Reader share what is written. nullopt when the source cannot do that.
  std::optional<SharedMutableBytes> private_view(std::size_t tensor) const;

  // Copies a whole tensor. `out` must have the size of the tensor.
  void read(std::size_t tensor, MutableBytes out) const;
  // Copies `out.size()` bytes from byte `offset` of a tensor.
  void read_range(std::size_t tensor, std::uint64_t offset, MutableBytes out) const;
  // Copies a strided selection of a tensor, in row-major order. Reads little more than the selection. `dims` has one
  // entry for each dimension, and `out` has the size of the selection. If elements are smaller than a byte, the
  // selection must contain the whole last dimension. Throws as check_expansion() does for the size of the selection.
  void read_slice(std::size_t tensor, std::span<const SliceDim> dims, MutableBytes out) const;

  struct Request {
    std::size_t tensor;
    MutableBytes out;  // has the size of the tensor
  };
  // Copies many tensors with several threads. Throws Error(kInvalidArgument) when outputs overlap. After an error the
  // contents of the outputs are undefined.
  void read_many(std::span<const Request> requests, const Progress& progress = {}) const;

  // Copies tensors into new memory, which is independent of the file. Each tensor is aligned to 64 bytes. Small tensors
  // share allocations of up to 64 MiB; an allocation lives as long as any of its tensors. Before anything is allocated,
  // the call throws as check_expansion() does, and throws Error(kMemory) when the tensors together need more memory
  // than is available.
  std::vector<SharedMutableBytes> load(std::span<const std::size_t> tensors, const Progress& progress = {}) const;

  // The bytes of a tensor for a Writer, which reads them while it writes. The producer keeps the file open. If the file
  // was opened with verification, the producer compares the checksum on the way: a fill() of a damaged tensor, at the
  // latest the last one, throws Error(kCorrupt).
  std::shared_ptr<ByteProducer> producer(std::size_t tensor) const;

  // The crc32c of each tensor, by number, as the metadata of the file records it; empty when there is no such record.
  // Does not depend on ReadOptions::verify. The checksums of a ZIP archive (.pt, .npz) are not among them, because they
  // cover storages or archive members, not tensors. Throws Error(kCorrupt) when the record is damaged.
  std::vector<std::optional<std::uint32_t>> recorded_checksums() const;

  // For callers that read a tensor from table().sources() themselves: compares the checksum of the tensor with `bytes`.
  // Throws Error(kCorrupt) when they differ. A tensor whose checksum was right once is not compared again. In a .pt or
  // .npz file the checksum covers a whole storage or archive member; the call then reads that from the file and does
  // not use `bytes`. Does nothing when the file has no checksum for the tensor, or was opened with Verify::kOff.
  void check(std::size_t tensor, ConstBytes bytes) const;

  // True when reading the tensor compares a checksum: the file has a checksum for it, and was opened with verification.
  bool has_checksum(std::size_t tensor) const;

  // Throws Error(kLimit) when this many bytes of tensors are more than a caller may copy out of the file at once
  // (Limits::expanded_bytes). A small hostile file can describe huge tensors: a tensor of a .pt file may repeat one
  // byte of the file a trillion times, and an archive may compress its data. Call this before you allocate memory for a
  // tensor or a slice. load() and read_slice() call it themselves.
  void check_expansion(std::uint64_t bytes) const;

  // Compares all checksums of the file, also those that were compared before, and returns their number. Throws
  // Error(kCorrupt) that names a tensor, storage or archive member whose bytes differ.
  std::size_t verify_all(const Progress& progress = {}) const;

  // The numbers of the tensors that no checksum of the file covers, so that verify_all() cannot check them. In a .pt
  // file a tensor is covered by the checksum of its storage, and a tensor without bytes needs no checksum.
  std::vector<std::size_t> without_checksum() const;

 private:
  friend class AssembledTensors;
  friend class BoxedTensors;
  struct State;
  class VerifiedBytes;
  explicit Reader(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  static Reader open_as(Format format, std::shared_ptr<const ByteSource> source, const ReadOptions& options);
  static Reader finish_open(std::shared_ptr<State> state);
  // `fresh` is the memory that holds all outputs if that memory is new and has never been written to; otherwise empty.
  void read_all(std::span<const Request> requests, std::span<const MutableBytes> fresh, const Progress& progress) const;

  std::shared_ptr<const State> state_;
};

}  // namespace weightstore
