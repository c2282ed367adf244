// Byte for byte what Burn writes: the index sorted by name, the data in the order of addition, each tensor on a
// multiple of 256, zeros between. Burn itself writes files that it then refuses to read; we do not.

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/little_endian.h"
#include "base/name_order.h"
#include "base/utf8.h"
#include "codec/cbor.h"
#include "formats/burnpack/constants.h"
#include "formats/burnpack/quant_cbor.h"
#include "weightstore/burnpack.h"
#include "weightstore/error.h"

namespace weightstore::burnpack {
namespace {

// What Burn reads are also the defaults of what we read. Only the size of a file depends on the release.
constexpr Limits kBurn;

struct Range {
  std::uint64_t begin;
  std::uint64_t end;
};

Error invalid(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

[[noreturn]] void fail_limit(const std::string& what, std::uint64_t limit) {
  throw Error(ErrorCode::kLimit, what + "; Burn could not read that back, its limit is " + std::to_string(limit));
}

void check_file_size(std::optional<std::uint64_t> bytes, BurnRelease release) {
  const std::uint64_t limit = traits_of(release).file_bytes;
  if (bytes && *bytes <= limit) return;
  fail_limit((bytes ? "a file of " + std::to_string(*bytes) + " bytes" : "a file that large") + " for Burn " +
                 std::string(name_of(release)),
             limit);
}

std::string burn(BurnRelease release) { return "Burn " + std::string(name_of(release)); }

void check_utf8(std::string_view text, const char* what) {
  if (!is_utf8(text)) throw invalid(std::string(what) + " is not UTF-8");
}

QuantScheme scheme_for(const NewTensor& tensor, BurnRelease release) {
  if (!tensor.quant) throw invalid("a QFloat tensor needs a quantization scheme");
  const QuantScheme& own = *tensor.quant;
  const auto scheme = as_release(own, release);
  if (!scheme) {
    throw invalid(burn(release) + " cannot express the quantization scheme " + to_string(own) + "; write for " +
                  burn(own.release) + ", or dequantize the tensor");
  }
  if (!has_same_values(own, tensor.shape, release)) {
    throw invalid(burn(release) + " reads other numbers than " + burn(own.release) + " from a payload quantized as " +
                  to_string(own) + "; write for " + burn(own.release) + ", or dequantize the tensor");
  }
  return *scheme;
}

void check_length(const NewTensor& tensor, BurnRelease release) {
  if (!tensor.bytes) throw invalid("has no bytes");
  const std::uint64_t length = tensor.bytes->size();
  if (tensor.dtype == DType::kQFloat) {
    const QuantScheme scheme = scheme_for(tensor, release);
    const std::uint64_t expected = payload_bytes(scheme, tensor.shape);
    if (expected != length) {
      throw invalid("has " + std::to_string(length) + " bytes, but its shape quantized as " + to_string(scheme) +
                    " takes " + std::to_string(expected) + " in " + burn(release));
    }
  } else {
    const auto expected = contiguous_bytes(tensor.dtype, tensor.shape);
    if (!expected) throw invalid("has a shape of 2^64 bits or more");
    if (*expected != length) {
      throw invalid("has " + std::to_string(length) + " bytes, but its shape and data type take " +
                    std::to_string(*expected));
    }
  }
  if (length > kBurn.burnpack_tensor_bytes) {
    fail_limit("a tensor of " + std::to_string(length) + " bytes", kBurn.burnpack_tensor_bytes);
  }
}

void check_tensor(const NewTensor& tensor, BurnRelease release) try {
  check_utf8(tensor.name, "the name");
  if (!in_burnpack(tensor.dtype)) {
    throw invalid("Burnpack has no data type for " + std::string(weightstore::name_of(tensor.dtype)) +
                  "; convert the tensor, or write SafeTensors");
  }
  if (tensor.dtype == DType::kBoolU32 && !traits_of(release).has_bool_stores) {
    throw invalid(burn(release) + " has no booleans of four bytes; write for Burn 0.21 or later");
  }
  if (tensor.shape.size() > kBurn.rank) throw invalid("has more dimensions than can be read back");
  check_length(tensor, release);
} catch (Error& error) {
  error.in_tensor(tensor.name);
  throw;
}

// Numbers of the entries in the order of their names; two alike are an error.
template <class NameOf, class Fail>
std::vector<std::uint32_t> sorted_by_name(std::size_t count, NameOf name, Fail fail_twice) {
  const std::vector<std::uint32_t> order = order_by_name(count, name);
  for (std::size_t i = 1; i < count; ++i) {
    if (name(order[i]) == name(order[i - 1])) fail_twice(name(order[i]));
  }
  return order;
}

std::vector<Range> place(const std::vector<NewTensor>& tensors, BurnRelease release) {
  std::vector<Range> ranges;
  ranges.reserve(tensors.size());
  std::uint64_t cursor = 0;
  for (const NewTensor& tensor : tensors) {
    const auto begin = checked_round_up(cursor, kAlignment);
    const auto end = begin ? checked_add(*begin, tensor.bytes->size()) : std::nullopt;
    check_file_size(end, release);
    ranges.push_back({*begin, *end});
    cursor = *end;
  }
  return ranges;
}

void write_dtype(CborWriter& writer, const NewTensor& tensor, BurnRelease release) {
  switch (tensor.dtype) {
    case DType::kQFloat:
      writer.begin_map(1);
      writer.write_text("QFloat");
      write_quant_scheme(writer, scheme_for(tensor, release));
      break;
    case DType::kBool:
    case DType::kBoolU8:
    case DType::kBoolU32:
      if (traits_of(release).has_bool_stores) writer.begin_map(1);
      writer.write_text("Bool");
      if (traits_of(release).has_bool_stores) {
        writer.write_text(tensor.dtype == DType::kBool ? "Native" : tensor.dtype == DType::kBoolU8 ? "U8" : "U32");
      }
      break;
    default:
      // SafeTensors and Burnpack agree on the names of numbers.
      writer.write_text(weightstore::name_of(tensor.dtype));
  }
}

void write_tensor(CborWriter& writer, const NewTensor& tensor, const Range& range, BurnRelease release) {
  writer.write_text(tensor.name);
  writer.begin_map(tensor.param_id ? 4 : 3);
  writer.write_text("dtype");
  write_dtype(writer, tensor, release);
  writer.write_text("shape");
  writer.begin_array(tensor.shape.size());
  for (const std::uint64_t dimension : tensor.shape) writer.write_uint(dimension);
  writer.write_text("data_offsets");
  writer.begin_array(2);
  writer.write_uint(range.begin);
  writer.write_uint(range.end);
  if (!tensor.param_id) return;
  writer.write_text("param_id");
  writer.write_uint(*tensor.param_id);
}

void write_text_map(CborWriter& writer, const TextMap& map) {
  const auto key = [&](std::size_t i) { return map.key(i); };
  const auto fail_twice = [](std::string_view name) {
    throw invalid("metadata key '" + std::string(name) + "' is given twice");
  };
  writer.write_text("metadata");
  writer.begin_map(map.size());
  for (const std::size_t i : sorted_by_name(map.size(), key, fail_twice)) {
    check_utf8(map.key(i), "a metadata key");
    check_utf8(map.value(i), "a metadata value");
    writer.write_text(map.key(i));
    writer.write_text(map.value(i));
  }
}

void write_scalar(CborWriter& writer, std::int64_t n) {
  writer.write_text("Int");
  writer.write_int(n);
}

void write_scalar(CborWriter& writer, std::uint64_t n) {
  writer.write_text("UInt");
  writer.write_uint(n);
}

void write_scalar(CborWriter& writer, double x) {
  writer.write_text("Float");
  writer.write_float(x);
}

void write_scalar(CborWriter& writer, bool b) {
  writer.write_text("Bool");
  writer.write_bool(b);
}

void write_scalars(CborWriter& writer, const ScalarMap& scalars) {
  const auto name = [&](std::size_t i) { return scalars.name(i); };
  const auto fail_twice = [](std::string_view twice) {
    throw invalid("scalar '" + std::string(twice) + "' is given twice");
  };
  writer.write_text("scalars");
  writer.begin_map(scalars.size());
  for (const std::size_t i : sorted_by_name(scalars.size(), name, fail_twice)) {
    check_utf8(scalars.name(i), "a scalar's name");
    writer.write_text(scalars.name(i));
    writer.begin_map(1);
    std::visit([&](auto value) { write_scalar(writer, value); }, scalars.value(i));
  }
}

std::string encode_metadata(const FileContents& contents, const std::vector<Range>& ranges, BurnRelease release) {
  const std::vector<NewTensor>& tensors = contents.tensors();
  const auto tensor_name = [&](std::size_t i) { return std::string_view(tensors[i].name); };
  const auto fail_twice = [](std::string_view name) { throw invalid("the name is given twice").in_tensor(name); };
  const bool has_metadata = contents.metadata() && !contents.metadata()->empty();
  const bool has_scalars = contents.scalars().size() != 0;

  std::string out;
  CborWriter writer(out);
  writer.begin_map(1u + has_metadata + has_scalars);
  writer.write_text("tensors");
  writer.begin_map(tensors.size());
  for (const std::size_t i : sorted_by_name(tensors.size(), tensor_name, fail_twice)) {
    write_tensor(writer, tensors[i], ranges[i], release);
  }
  if (has_metadata) write_text_map(writer, *contents.metadata());
  if (has_scalars) write_scalars(writer, contents.scalars());
  return out;
}

Layout plan_layout(const FileContents& contents, BurnRelease release) {
  const std::vector<NewTensor>& tensors = contents.tensors();
  if (tensors.size() > kBurn.burnpack_tensors) {
    fail_limit(std::to_string(tensors.size()) + " tensors", kBurn.burnpack_tensors);
  }
  for (const NewTensor& tensor : tensors) check_tensor(tensor, release);
  const std::vector<Range> ranges = place(tensors, release);
  const std::string metadata = encode_metadata(contents, ranges, release);
  if (metadata.size() > kBurn.burnpack_metadata_bytes) {
    fail_limit("metadata of " + std::to_string(metadata.size()) + " bytes", kBurn.burnpack_metadata_bytes);
  }

  Layout layout;
  const std::uint64_t data_begin = *checked_round_up(kHeaderBytes + metadata.size(), kAlignment);
  layout.header.reserve(static_cast<std::size_t>(data_begin));
  append_little_endian(layout.header, kMagic, 4);
  append_little_endian(layout.header, kVersion, 2);
  append_little_endian(layout.header, metadata.size(), 4);
  layout.header += metadata;
  layout.header.resize(static_cast<std::size_t>(data_begin), '\0');
  layout.placements.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    layout.placements.push_back({i, data_begin + ranges[i].begin, data_begin + ranges[i].end});
  }
  layout.file_size = tensors.empty() ? data_begin : layout.placements.back().end;
  check_file_size(layout.file_size, release);
  return layout;
}

}  // namespace

Layout plan(const FileContents& contents, BurnRelease release) {
  try {
    return plan_layout(contents, release);
  } catch (Error& error) {
    error.of_format(Format::kBurnpack);
    throw;
  }
}

}  // namespace weightstore::burnpack
