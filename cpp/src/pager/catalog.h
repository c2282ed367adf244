#pragma once

// The tensors that a pager serves, and how each of them is read.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "io/direct_file.h"
#include "pager/frame.h"
#include "pager/load.h"
#include "weightstore/pager.h"

namespace weightstore::pager {

// Does not change after it was made: thread-safe, and used with or without the pager's mutex.
class Catalog {
 public:
  // A raw source has no reader; its tensors are those of `raw_table`. Throws Error(kLimit) for a tensor that is larger
  // than any memory.
  Catalog(std::optional<Reader> reader, TensorTable raw_table, const PagerOptions& options);

  const TensorTable& table() const { return reader_ ? reader_->table() : raw_table_; }
  // Throws Error(kNotFound) unless there is a tensor with this number.
  std::size_t checked(std::size_t tensor) const;

  bool reads_directly() const { return !direct_.empty(); }
  // Zero copy: callers get the source's own memory, and nothing is read into a buffer.
  bool is_view(std::size_t tensor) const { return viewable_[table().source_of(tensor)]; }
  LoadPlan plan(std::size_t tensor) const;
  // How much memory the tensor takes once it is loaded, with the slack of its buffer.
  std::uint64_t charge(std::size_t tensor) const;
  // The largest LoadPlan::buffer_bytes() of all tensors.
  std::uint64_t largest_buffer() const { return largest_buffer_; }

  // Copies a small tensor of a mapped raw file out of the mapping: a call of the system takes longer. False, and
  // nothing happens, for any other tensor.
  bool copy_from_mapping(std::size_t tensor, MutableBytes out) const;
  // Brings the pages of a tensor into memory and lets the frame point to them. Only when is_view(). The kernel may take
  // the pages back once the last owner of the view is gone.
  void show(std::size_t tensor, Frame& frame) const;
  // Throws Error(kLimit) before a compressed or expanded tensor takes more memory than its file allows.
  void check_expansion(std::uint64_t size) const {
    if (reader_) reader_->check_expansion(size);
  }
  bool may_verify() const { return reader_.has_value(); }
  // Compares the checksum when the reader does that and the file has one. Throws Error(kCorrupt).
  void verify(std::size_t tensor, ConstBytes bytes) const {
    if (reader_) reader_->check(tensor, bytes);
  }

  // Call this in an exception handler. Returns a function that throws the current exception as an error about this
  // tensor; each call throws a copy of its own, so that several threads can handle the error. When the file has become
  // too short, the error is an OffloadEof.
  Failure current_failure(std::size_t tensor) const;

 private:
  // How many bytes the file has now, from the beginning of the tensor on; nullopt when the source is not a file.
  std::optional<std::uint64_t> bytes_left(std::size_t tensor) const;
  const ByteSource& source_of(std::size_t tensor) const { return *table().sources()[table().source_of(tensor)]; }

  const std::optional<Reader> reader_;
  const TensorTable raw_table_;
  io::FileOps& ops_ = io::current_file_ops();            // of the thread that made the pager
  std::vector<bool> viewable_;                           // by source
  std::vector<std::unique_ptr<io::DirectFile>> direct_;  // by source; empty when reads use the page cache
  std::uint64_t largest_buffer_ = 0;
};

}  // namespace weightstore::pager
