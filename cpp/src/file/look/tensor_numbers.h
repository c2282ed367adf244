#pragma once

// The numbers of a tensor of a file, part by part, for operations that look at all of them on several threads.

#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/number_decoder.h"
#include "weightstore/byte_producer.h"
#include "weightstore/reader.h"

namespace weightstore {

class TensorNumbers {
 public:
  // `as_bytes`: the bytes of a type that has no numbers count as numbers of U8.
  // Reads nothing yet, unless the reader verifies: then a tensor that can be viewed is compared with its checksum now.
  // Throws as Reader::view() does.
  // The object keeps a pointer to `reader`.
  TensorNumbers(const Reader& reader, std::size_t tensor, bool as_bytes = false);

  bool has_numbers() const { return has_numbers_; }
  std::uint64_t size() const { return size_; }      // in numbers
  DType type() const { return type_; }              // of the numbers that read() returns
  std::uint64_t nbytes() const { return nbytes_; }  // in the file

  // True when any number of threads may call read(), with parts in any order. Otherwise one thread reads parts that
  // follow each other, and begins again with part 0 as often as it likes.
  bool is_shared() const { return producer_ == nullptr; }

  // The numbers [first, first + count), where they are or in `buffer`, which has room for count * 8 bytes. `first` is
  // even. Throws as Reader::read_range() and ByteProducer::fill() do.
  ConstBytes read(std::uint64_t first, std::size_t count, MutableBytes buffer) const;

 private:
  const Reader* reader_;  // which outlives this object
  std::size_t tensor_;
  std::optional<SharedBytes> view_;
  bool is_loaded_ = false;  // view_ is a copy
  std::shared_ptr<ByteProducer> producer_;
  std::shared_ptr<const kernels::NumberDecoder> quant_;
  DType type_;
  std::uint64_t nbytes_;
  std::uint64_t size_ = 0;
  bool has_numbers_ = false;
};

}  // namespace weightstore
