#pragma once

// The checksums of an open file, and how they are compared with the bytes of the file.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weightstore/byte_source.h"
#include "weightstore/tensor.h"

namespace weightstore {

// Each checksum covers a section of the file. Depending on the format, a section is a tensor, a storage that several
// tensors share (.pt), or an archive member (.npz). The object remembers the sections whose checksum was right, so that
// check() compares each section only once. Thread-safe.
//
// `table` is the table of the file, or another table with the same sources; `tensor` is a number in `table`. Errors
// name both checksums, and the storage or archive member. The caller adds the file, the format and, where check() or
// compare() throws, the tensor.
class Checksums {
 public:
  virtual ~Checksums() = default;

  // True when a checksum covers the tensor. May also be true for a tensor without bytes, which needs no checksum.
  virtual bool covers(const TensorTable& table, std::size_t tensor) const = 0;
  // True when a checksum covers the tensor and has not been compared yet.
  virtual bool needs_check(const TensorTable& table, std::size_t tensor) const = 0;
  // Compares the checksum of the section that holds the tensor, if needs_check(). `bytes` are the bytes of the tensor
  // if the caller has them, otherwise null. Reads the section from the file if `bytes` is null, or if sections of this
  // format are not tensors. Throws Error(kCorrupt) when the checksum is wrong.
  virtual void check(const TensorTable& table, std::size_t tensor, const ConstBytes* bytes) const = 0;

  // For a caller that streams a tensor. If is_whole_section(), the section consists of this tensor alone. The caller
  // then starts with the checksum 0, calls extend() for each piece in order, and calls compare() at the end. compare()
  // throws Error(kCorrupt) when the checksum is wrong.
  virtual bool is_whole_section(const TensorTable& table, std::size_t tensor) const = 0;
  virtual std::uint32_t extend(ConstBytes bytes, std::uint32_t crc) const = 0;
  virtual void compare(const TensorTable& table, std::size_t tensor, std::uint32_t crc) const = 0;

  // Throws Error(kUnsupported or kCorrupt) unless covers() is true for all tensors. The error names a tensor, or a
  // section without a checksum, if the file has any checksums.
  virtual void require_all(const TensorTable& table) const = 0;

  struct Section {
    std::size_t number;
    std::uint64_t nbytes;
    std::string_view name;  // lives as long as the table and this object
  };
  // The sections that have a checksum.
  virtual std::vector<Section> sections(const TensorTable& table) const = 0;
  // Reads a section and compares its checksum, even if it was compared before. Throws Error(kCorrupt) when the checksum
  // is wrong.
  virtual void check_section(const TensorTable& table, std::size_t number) const = 0;
};

}  // namespace weightstore
