#include "weightstore/convert.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/metadata_keys.h"
#include "file/table_entry.h"
#include "formats/registry.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"
#include "weightstore/transform.h"

namespace weightstore {
namespace {

// The type under which `target` holds the same bytes. Throws when it has none.
DType stored_type(DType dtype, const FormatSpec& target) {
  if (const auto stored = target.stored_as(dtype)) return *stored;
  const char* what_to_do =
      dtype == DType::kQFloat ? "; dequantize it, for example with dtype=\"F32\"" : "; change its type first";
  throw Error(ErrorCode::kInvalidArgument, "its type " + std::string(name_of(dtype)) + " does not exist in " +
                                               std::string(target.title) + what_to_do);
}

void check_scalars(const ScalarMap& scalars, const FormatSpec& target) {
  if (target.has_scalars || scalars.size() == 0) return;
  const auto holds_scalars = [](const FormatSpec& spec) { return spec.has_scalars && spec.plan != nullptr; };
  throw Error(ErrorCode::kInvalidArgument, "the source has " + std::to_string(scalars.size()) + " scalars, such as '" +
                                               printable(scalars.name(0)) + "', which " + std::string(target.title) +
                                               " cannot hold; write a " + endings_of(holds_scalars) + " file instead");
}

// What `target` shall say under `format`, given what the source says; nullopt to say nothing. Between formats that
// both name a framework there, or both do not, the entry stays as it is. Burn's stores say "burnpack", or nothing,
// where Hugging Face's loaders need "pt"; and so that SafeTensors metadata without the entry come back from a Burnpack
// file as they were, they are marked there.
std::optional<std::string_view> format_entry(const Reader& source, const FormatSpec& target, bool other_metadata) {
  const auto said = source.table().metadata().find(kFormatKey);
  if (spec_of(source.format()).names_framework == target.names_framework) return said;
  if (!target.names_framework) return !said && other_metadata ? kFormatSafetensors : said;
  if (said == kFormatSafetensors) return std::nullopt;
  if (said == kFormatBurnpack || (!said && other_metadata)) return kFormatPt;
  return said;
}

// Without the checksums, which the tensors bring along.
TextMap metadata_of(const Reader& source, const FormatSpec& target, bool checksums) {
  const TextMap& metadata = source.table().metadata();
  const bool is_set = spec_of(source.format()).is_index;
  const auto tables = table_entry_for(metadata, source.table());
  const bool foreign_tables = !find_table_entry(metadata);
  TextMap result;
  for (std::size_t i = 0; i < metadata.size(); ++i) {
    const std::string_view key = metadata.key(i);
    // `total_size` describes a set of shards, not the model; a new set gets its own.
    if (key == kChecksumKey || key == kFormatKey || (is_set && key == "total_size")) continue;
    if (key != kTablesKey || foreign_tables) {
      result.add(key, metadata.value(i));
    } else if (tables) {
      result.add(key, *tables);
    }
  }
  if (const auto format = format_entry(source, target, checksums || !result.empty())) result.add(kFormatKey, *format);
  result.sort();
  return result;
}

}  // namespace

void describe_as(const Reader& source, Format target, FileContents& contents) try {
  const TensorTable& table = source.table();
  const FormatSpec& spec = spec_of(target);
  check_scalars(table.scalars(), spec);
  if (table.typed_metadata() != nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "the source has metadata that are more than text, which " + std::string(spec.title) + " cannot hold");
  }
  const auto has_checksum = [](const NewTensor& tensor) { return tensor.crc32c.has_value(); };
  const bool checksums = std::any_of(contents.tensors().begin(), contents.tensors().end(), has_checksum);
  const TextMap metadata = metadata_of(source, spec, checksums);
  const bool present = spec_of(source.format()).tells_empty_metadata ? table.has_metadata() : !metadata.empty();
  if (present) contents.set_metadata(metadata);
  contents.set_scalars(table.scalars());
} catch (Error& error) {
  error.of_format(target);
  throw;
}

Conversion plan_conversion(const Reader& source, Format target, std::optional<DType> floats) try {
  const TensorTable& table = source.table();
  const FormatSpec& spec = spec_of(target);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < table.size(); ++i) total += std::min(table.nbytes(i), ~total);
  source.check_expansion(total);
  const std::vector<std::optional<std::uint32_t>> crcs = source.recorded_checksums();
  Conversion conversion;
  conversion.burn = table.burn_release().value_or(kNewestStableBurn);
  for (std::size_t i = 0; i < table.size(); ++i) {
    TensorInfo info = table[i];
    const bool becomes_numbers = floats && info.quant != nullptr;
    const bool is_cast = floats && info.dtype != *floats && can_cast(info.dtype, *floats);
    NewTensor tensor;
    tensor.bytes = source.producer(i);
    try {
      tensor.dtype = stored_type(becomes_numbers || is_cast ? *floats : info.dtype, spec);
      if (becomes_numbers) tensor.bytes = dequantized_bytes(tensor.bytes, *info.quant, info.shape, *floats);
      if (is_cast) tensor.bytes = cast_bytes(tensor.bytes, info.dtype, *floats);
    } catch (Error& error) {
      throw error.in_tensor(info.name);
    }
    tensor.name = std::move(info.name);
    tensor.shape = std::move(info.shape);
    if (!crcs.empty() && !becomes_numbers && !is_cast) tensor.crc32c = crcs[i];
    if (!becomes_numbers) tensor.quant = std::move(info.quant);
    if (spec.has_param_ids) {
      tensor.param_id = info.param_id;
    } else if (info.param_id) {
      ++conversion.dropped_param_ids;
    }
    conversion.contents.add(std::move(tensor));
  }
  describe_as(source, target, conversion.contents);
  return conversion;
} catch (Error& error) {
  error.of_format(target);
  throw;
}

void convert_file(const std::filesystem::path& source, const std::filesystem::path& target,
                  const WriteOptions& options) {
  format_of_name(target.filename().string());  // before anything is opened
  ReadOptions read;
  read.verify = Verify::kLazy;
  convert_file(Reader::open(source, read), target, options);
}

void convert_file(const Reader& source, const std::filesystem::path& target, const WriteOptions& options) {
  const Format format = format_of_name(target.filename().string());
  const Conversion conversion = plan_conversion(source, format);
  WriteOptions adjusted = options;
  adjusted.order = TensorOrder::kAsAdded;
  adjusted.burn = options.burn.value_or(conversion.burn);
  conversion.contents.write_file(target, format, adjusted);
}

}  // namespace weightstore
