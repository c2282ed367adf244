#include "weightstore/convert.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/metadata_keys.h"
#include "file/table_entry.h"
#include "formats/gguf/file_type.h"
#include "formats/registry.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"
#include "weightstore/transform.h"
#include "weightstore/typed_metadata.h"

namespace weightstore {
namespace {

// The type under which `target` holds the same bytes. Throws when it has none.
DType stored_type(DType dtype, const FormatSpec& target) {
  if (const auto stored = target.stored_as(dtype)) return *stored;
  const bool is_quantized = dtype == DType::kQFloat || block_of(dtype);
  const char* what_to_do = is_quantized ? "; dequantize it, for example with dtype=\"F32\"" : "; change its type first";
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
  if (spec_of(source.format()).names_framework == target.names_framework || target.has_typed_metadata) return said;
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

// Typed metadata go to a format that has them as they are. Elsewhere the text of scalars is in metadata_of(), and
// `dropped` gets the keys of all other entries.
void carry_typed_metadata(const TensorTable& table, const FormatSpec& target, std::optional<DType> dtype,
                          FileContents& contents, std::vector<std::string>& dropped) {
  const TypedMetadata none;
  const TypedMetadata& source = table.typed_metadata() != nullptr ? *table.typed_metadata() : none;
  if (!target.has_typed_metadata) {
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (!as_text(source.value(i))) dropped.emplace_back(source.key(i));
    }
    return;
  }
  TypedMetadata carried;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source.key(i) == kChecksumKey) continue;  // the tensors bring their checksums along
    carried.add(source.key(i), source.value(i).type(), source.value(i).encoded());
  }
  if (dtype) gguf::describe_file_type(carried, *dtype);
  if (carried.size() != 0) contents.set_typed_metadata(std::make_shared<const TypedMetadata>(std::move(carried)));
}

bool is_quantized(const TensorInfo& info) { return info.quant != nullptr || block_of(info.dtype); }

// The numbers of a quantized tensor.
std::shared_ptr<ByteProducer> numbers_of(const TensorInfo& info, std::shared_ptr<ByteProducer> bytes, DType to) {
  if (info.quant != nullptr) return dequantized_bytes(std::move(bytes), *info.quant, info.shape, to);
  return dequantized_bytes(std::move(bytes), info.dtype, to);
}

enum class Change : std::uint8_t { kNone, kCast, kDequantize, kQuantize, kCannotQuantize };

// What becomes of a tensor when the caller asks for `dtype`.
Change change_of(const TensorInfo& info, std::optional<DType> dtype) {
  if (!dtype || info.dtype == *dtype) return Change::kNone;
  const auto block = block_of(*dtype);
  if (!block) {
    if (is_quantized(info)) return Change::kDequantize;
    return can_cast(info.dtype, *dtype) ? Change::kCast : Change::kNone;
  }
  if (info.shape.size() < 2 || !(is_quantized(info) || can_cast(info.dtype, DType::kF32))) return Change::kNone;
  return info.shape.back() % block->elements == 0 ? Change::kQuantize : Change::kCannotQuantize;
}

void check_dtype(std::optional<DType> dtype, const FormatSpec& target) {
  if (!dtype || can_cast(DType::kF32, *dtype)) return;
  if (!can_quantize(*dtype)) {
    throw Error(ErrorCode::kInvalidArgument,
                "tensors become F32, F64, F16, BF16, Q8_0 or Q4_0, not " + std::string(name_of(*dtype)));
  }
  stored_type(*dtype, target);
}

// Sets the metadata and the scalars. Returns the keys of the metadata that the target cannot hold.
std::vector<std::string> describe(const Reader& source, const FormatSpec& target, std::optional<DType> dtype,
                                  FileContents& contents) {
  const TensorTable& table = source.table();
  check_scalars(table.scalars(), target);
  std::vector<std::string> dropped;
  carry_typed_metadata(table, target, dtype, contents, dropped);
  if (table.typed_metadata() == nullptr || !target.has_typed_metadata) {
    const auto has_checksum = [](const NewTensor& tensor) { return tensor.crc32c.has_value(); };
    const bool checksums = std::any_of(contents.tensors().begin(), contents.tensors().end(), has_checksum);
    const TextMap metadata = metadata_of(source, target, checksums);
    const bool present = spec_of(source.format()).tells_empty_metadata ? table.has_metadata() : !metadata.empty();
    if (present) contents.set_metadata(metadata);
  }
  contents.set_scalars(table.scalars());
  return dropped;
}

}  // namespace

std::vector<std::string> describe_as(const Reader& source, Format target, FileContents& contents) try {
  return describe(source, spec_of(target), std::nullopt, contents);
} catch (Error& error) {
  error.of_format(target);
  throw;
}

Conversion plan_conversion(const Reader& source, Format target, std::optional<DType> dtype) try {
  const TensorTable& table = source.table();
  const FormatSpec& spec = spec_of(target);
  check_dtype(dtype, spec);
  check_scalars(table.scalars(), spec);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < table.size(); ++i) total += std::min(table.nbytes(i), ~total);
  source.check_expansion(total);
  const std::vector<std::optional<std::uint32_t>> crcs = source.recorded_checksums();
  Conversion conversion;
  conversion.burn = table.burn_release().value_or(kNewestStableBurn);
  for (std::size_t i = 0; i < table.size(); ++i) {
    TensorInfo info = table[i];
    const Change change = change_of(info, dtype);
    const bool is_changed = change != Change::kNone && change != Change::kCannotQuantize;
    NewTensor tensor;
    tensor.bytes = source.producer(i);
    try {
      tensor.dtype = stored_type(is_changed ? *dtype : info.dtype, spec);
      if (change == Change::kCast) tensor.bytes = cast_bytes(tensor.bytes, info.dtype, *dtype);
      if (change == Change::kDequantize) tensor.bytes = numbers_of(info, tensor.bytes, *dtype);
      if (change == Change::kQuantize) {
        tensor.bytes = is_quantized(info) ? numbers_of(info, tensor.bytes, DType::kF32)
                                          : cast_bytes(tensor.bytes, info.dtype, DType::kF32);
        tensor.bytes = quantized_bytes(tensor.bytes, *dtype);
      }
    } catch (Error& error) {
      throw error.in_tensor(info.name);
    }
    if (change == Change::kCannotQuantize) conversion.not_quantized.push_back(info.name);
    tensor.name = std::move(info.name);
    tensor.shape = std::move(info.shape);
    if (!is_changed) {
      if (!crcs.empty()) tensor.crc32c = crcs[i];
      tensor.quant = std::move(info.quant);
    }
    if (spec.has_param_ids) {
      tensor.param_id = info.param_id;
    } else if (info.param_id) {
      ++conversion.dropped_param_ids;
    }
    conversion.contents.add(std::move(tensor));
  }
  conversion.dropped_metadata = describe(source, spec, dtype, conversion.contents);
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
