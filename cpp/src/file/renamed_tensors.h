#pragma once

// The new table and checksums of Reader::renamed().

#include <string>
#include <vector>

#include "file/checksum_table.h"
#include "weightstore/rename.h"
#include "weightstore/tensor.h"

namespace weightstore {

// The tensors of a table that are kept, and their new names. The order is that of their data, so tensor i here has
// number i in the new table.
struct RenamedTensors {
  const TensorTable* from;
  std::vector<std::size_t> numbers;  // of the kept tensors in `from`
  std::vector<std::string> names;    // their new names, all different

  // A copy of `from` with these tensors only, under their new names. If `from` has metadata, `metadata` replaces it.
  TensorTable table(TextMap metadata) const;

  // The text of a metadata entry with the checksums of these tensors, under their new names. `all` has the checksums of
  // all tensors of `from`.
  std::string checksums(const ChecksumTable& all) const;
};

// Calls the hooks. Throws Error(kInvalidArgument) when two tensors would get the same name.
RenamedTensors rename_tensors(const TensorTable& table, const NameHooks& hooks);

// A copy of `metadata` in which `entry` replaces the entry of checksums, if there is one.
TextMap with_checksum_entry(const TextMap& metadata, const std::string& entry);

}  // namespace weightstore
