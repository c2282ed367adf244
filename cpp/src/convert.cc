#include "weightstore/convert.h"

#include <algorithm>
#include <string>
#include <utility>

#include "weightstore/error.h"

namespace weightstore {
namespace {

// The type under which `target` holds the same bytes. Throws when it has none.
DType stored_type(DType dtype, Format target) {
  const bool burnpack = target == Format::kBurnpack;
  if (!burnpack && dtype == DType::kFlex32) return DType::kF32;
  if (!burnpack && dtype == DType::kBoolU8) return DType::kBool;
  if (burnpack ? in_burnpack(dtype) : in_safetensors(dtype)) return dtype;
  throw Error(ErrorCode::kInvalidArgument, "its type " + std::string(name_of(dtype)) + " does not exist in " +
                                               (burnpack ? "Burnpack" : "SafeTensors") + "; change its type first");
}

BurnCompat compat_of(const TensorTable& table) {
  if (table.dialect() == "0.21") return BurnCompat::k021;
  return table.dialect() == "0.22" ? BurnCompat::k022 : BurnCompat::k020;
}

// `total_size` describes a set of shards, not the model; a new set gets its own.
TextMap metadata_of(const Reader& source) {
  const TextMap& metadata = source.table().metadata();
  if (source.format() != Format::kSafetensorsIndex) return metadata;
  TextMap result;
  for (std::size_t i = 0; i < metadata.size(); ++i) {
    if (metadata.key(i) != "total_size") result.add(metadata.key(i), metadata.value(i));
  }
  return result;
}

}  // namespace

Conversion plan_conversion(const Reader& source, Format target) try {
  const TensorTable& table = source.table();
  if (target != Format::kBurnpack && table.scalars().size() != 0) {
    throw Error(ErrorCode::kInvalidArgument, "the source has " + std::to_string(table.scalars().size()) +
                                                 " scalars, such as '" + printable(table.scalars().name(0)) +
                                                 "', which SafeTensors cannot hold; write a .bpk file instead");
  }
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < table.size(); ++i) total += std::min(table.nbytes(i), ~total);
  source.check_expansion(total);
  Conversion conversion;
  conversion.burn_compat = compat_of(table);
  for (std::size_t i = 0; i < table.size(); ++i) {
    TensorInfo info = table[i];
    NewTensor tensor;
    try {
      tensor.dtype = stored_type(info.dtype, target);
    } catch (Error& error) {
      throw error.in_tensor(info.name);
    }
    tensor.name = std::move(info.name);
    tensor.shape = std::move(info.shape);
    tensor.bytes = source_bytes(table.sources()[info.source], info.begin, info.nbytes());
    tensor.quant = std::move(info.quant);
    if (target == Format::kBurnpack) {
      tensor.param_id = info.param_id;
    } else if (info.param_id) {
      ++conversion.dropped_param_ids;
    }
    conversion.contents.add(std::move(tensor));
  }
  const TextMap metadata = metadata_of(source);
  const bool only_of_a_set = source.format() == Format::kSafetensorsIndex && metadata.empty();
  if (table.has_metadata() && !only_of_a_set) conversion.contents.set_metadata(metadata);
  conversion.contents.set_scalars(table.scalars());
  return conversion;
} catch (Error& error) {
  error.of_format(target);
  throw;
}

void convert_file(const std::filesystem::path& source, const std::filesystem::path& target,
                  const WriteOptions& options) {
  format_of_name(target.filename().string());  // before anything is opened
  convert_file(Reader::open(source), target, options);
}

void convert_file(const Reader& source, const std::filesystem::path& target, const WriteOptions& options) {
  const Format format = format_of_name(target.filename().string());
  const Conversion conversion = plan_conversion(source, format);
  WriteOptions adjusted = options;
  adjusted.order = TensorOrder::kAsAdded;
  adjusted.burn_compat = conversion.burn_compat;
  conversion.contents.write_file(target, format, adjusted);
}

}  // namespace weightstore
