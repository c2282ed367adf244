#include "file/renamed_tensors.h"

#include <string_view>
#include <utility>

#include "base/name_set.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"

namespace weightstore {

RenamedTensors rename_tensors(const TensorTable& table, const NameHooks& hooks) {
  RenamedTensors result{&table, {}, {}};
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (hooks.keep && !hooks.keep(table[i])) continue;
    result.numbers.push_back(i);
    result.names.push_back(hooks.rename ? hooks.rename(table.name(i)) : std::string(table.name(i)));
  }
  NameSet seen(result.names.size(), [&](std::size_t i) { return std::string_view(result.names[i]); });
  for (std::size_t i = 0; i < result.names.size(); ++i) {
    const auto other = seen.add(i);
    if (!other) continue;
    throw Error(ErrorCode::kInvalidArgument, "'" + printable(table.name(result.numbers[*other])) + "' and '" +
                                                 printable(table.name(result.numbers[i])) +
                                                 "' would both have this name; rename or leave out one of them")
        .in_tensor(result.names[i]);
  }
  return result;
}

TensorTable RenamedTensors::table(TextMap metadata) const {
  TensorTable result;
  for (const auto& source : from->sources()) result.add_source(source);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const TensorInfo info = (*from)[numbers[i]];
    result.add({names[i], info.dtype, info.shape, info.source, info.begin, info.end, info.param_id, info.quant});
  }
  if (from->has_metadata()) result.set_metadata(std::move(metadata));
  result.set_typed_metadata(from->typed_metadata());
  result.set_scalars(from->scalars());
  result.set_dialect(from->dialect());
  result.set_left_out(from->left_out());
  result.finish();
  return result;
}

std::string RenamedTensors::checksums(const ChecksumTable& all) const {
  std::vector<std::string_view> known;
  std::vector<std::uint32_t> crcs;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto crc = all.expected(numbers[i]);
    if (!crc) continue;
    known.push_back(names[i]);
    crcs.push_back(*crc);
  }
  return checksum_entry(known, crcs);
}

TextMap with_checksum_entry(const TextMap& metadata, const std::string& entry) {
  TextMap result;
  for (std::size_t i = 0; i < metadata.size(); ++i) {
    result.add(metadata.key(i), metadata.key(i) == kChecksumKey ? std::string_view(entry) : metadata.value(i));
  }
  return result;
}

}  // namespace weightstore
