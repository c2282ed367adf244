#pragma once

// The tables behind Reader::renamed().

#include <string>
#include <vector>

#include "file/checksum_table.h"
#include "weightstore/rename.h"
#include "weightstore/tensor.h"

namespace weightstore {

// The tensors of a table that stay, in its order, which is that of the data and so of a new table, too.
struct RenamedTensors {
  const TensorTable* from;
  std::vector<std::size_t> numbers;  // in `from`
  std::vector<std::string> names;    // new, all different

  // Like `from`, of these tensors only, with `metadata` in place of its own if it has any.
  TensorTable table(TextMap metadata) const;

  // The checksums of these tensors, of those of all tensors, as an entry for the metadata.
  std::string checksums(const ChecksumTable& all) const;
};

// Throws Error(kInvalidArgument) when two names become one.
RenamedTensors rename_tensors(const TensorTable& table, const NameHooks& hooks);

// `metadata` with this text for the checksums, where it has checksums at all.
TextMap with_checksum_entry(const TextMap& metadata, const std::string& entry);

}  // namespace weightstore
