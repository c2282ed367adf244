// Memory: at most a few bytes for each byte of CBOR, whatever it says. Maps of text and scalars have entries of few
// bytes, so they are counted first and get exactly the room they need; of tensors there are at most 100,000 and each
// takes at least 30 bytes of CBOR; of dimensions only one tensor's are ever spread out.

#include "formats/burnpack/metadata.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "codec/cbor.h"
#include "formats/burnpack/constants.h"
#include "formats/burnpack/field_names.h"
#include "formats/burnpack/quant_cbor.h"
#include "weightstore/error.h"

namespace weightstore::burnpack {
namespace {

enum RootField { kTensors, kMetadata, kScalars };
constexpr std::string_view kRootFields[] = {"tensors", "metadata", "scalars"};

enum TensorField { kDType, kShape, kDataOffsets, kParamId };
constexpr std::string_view kTensorFields[] = {"dtype", "shape", "data_offsets", "param_id"};

struct NamedType {
  std::string_view name;
  DType dtype;
};
constexpr NamedType kPlainTypes[] = {
    {"F32", DType::kF32},       {"F16", DType::kF16},   {"BF16", DType::kBF16}, {"F64", DType::kF64},
    {"I64", DType::kI64},       {"I32", DType::kI32},   {"I16", DType::kI16},   {"I8", DType::kI8},
    {"U64", DType::kU64},       {"U32", DType::kU32},   {"U16", DType::kU16},   {"U8", DType::kU8},
    {"Flex32", DType::kFlex32}, {"Bool", DType::kBool},
};
constexpr NamedType kBoolStores[] = {{"Native", DType::kBool}, {"U8", DType::kBoolU8}, {"U32", DType::kBoolU32}};

std::string quoted(std::string_view text) { return "'" + std::string(text.substr(0, 64)) + "'"; }

Error corrupt(std::string message, std::uint64_t offset) {
  return std::move(Error(ErrorCode::kCorrupt, std::move(message)).at_offset(offset));
}

template <std::size_t N>
DType find_type(const NamedType (&types)[N], std::string_view name, std::uint64_t offset) {
  for (const NamedType& type : types) {
    if (type.name == name) return type.dtype;
  }
  throw Error(ErrorCode::kUnsupported, "unknown data type " + quoted(name) +
                                           "; Burnpack has F64 F32 F16 BF16 Flex32 "
                                           "I64 I32 I16 I8 U64 U32 U16 U8 Bool QFloat")
      .at_offset(offset);
}

class Parser {
 public:
  Parser(const HeaderText& cbor, std::uint64_t first_offset, std::uint64_t data_begin, const Limits& limits,
         BurnRelease newest)
      : cursor_(cbor.as_bytes(), first_offset), data_begin_(data_begin), limits_(limits), newest_(newest) {}

  Metadata parse();

 private:
  void parse_tensors();
  void parse_tensor(std::string_view name);
  DType parse_dtype();
  void parse_shape();
  void parse_data_offsets(std::uint64_t& begin, std::uint64_t& end);
  void check_length(DType dtype, std::uint64_t length, std::uint64_t offset) const;
  TextMap parse_text();
  ScalarMap parse_scalars();
  Scalar parse_scalar();

  CborCursor cursor_;
  const std::uint64_t data_begin_;
  const Limits& limits_;
  const BurnRelease newest_;
  Metadata out_;
  std::vector<std::uint64_t> shape_;           // of the tensor at hand
  std::shared_ptr<const QuantScheme> scheme_;  // the last one: most tensors are quantized alike
};

Metadata Parser::parse() {
  FieldNames names(kRootFields);
  cursor_.enter_map();
  while (cursor_.next()) {
    switch (names.read(cursor_)) {
      case kTensors:
        parse_tensors();
        break;
      case kMetadata:
        out_.table.set_metadata(parse_text());
        break;
      case kScalars:
        out_.table.set_scalars(parse_scalars());
        break;
      default:
        cursor_.skip_value();
    }
  }
  names.require(kTensors, cursor_);
  names.check_unknown(cursor_);
  if (!cursor_.at_end()) throw corrupt("bytes behind the metadata's one CBOR item", cursor_.offset());
  return std::move(out_);
}

void Parser::parse_tensors() {
  std::string scratch;
  cursor_.enter_map();
  while (cursor_.next()) {
    if (out_.table.size() >= limits_.burnpack_tensors) {
      throw Error(ErrorCode::kLimit, "more than " + std::to_string(limits_.burnpack_tensors) + " tensors")
          .at_offset(cursor_.offset());
    }
    const std::string_view name = cursor_.read_text(scratch);
    try {
      parse_tensor(name);
    } catch (Error& error) {
      error.in_tensor(name);
      throw;
    }
  }
}

void Parser::parse_tensor(std::string_view name) {
  const std::uint64_t start = cursor_.offset();
  TensorTable::Row tensor;
  tensor.name = name;
  FieldNames names(kTensorFields);
  cursor_.enter_map();
  while (cursor_.next()) {
    switch (names.read(cursor_)) {
      case kDType:
        tensor.dtype = parse_dtype();
        break;
      case kShape:
        parse_shape();
        break;
      case kDataOffsets:
        parse_data_offsets(tensor.begin, tensor.end);
        break;
      case kParamId:
        if (cursor_.peek() == CborKind::kNull) {
          cursor_.read_null();
        } else {
          tensor.param_id = cursor_.read_uint();
        }
        break;
      default:
        cursor_.skip_value();
    }
  }
  names.require(kDType, cursor_);
  names.require(kShape, cursor_);
  names.require(kDataOffsets, cursor_);
  names.check_unknown(cursor_);

  const std::uint64_t length = tensor.end - tensor.begin;
  check_length(tensor.dtype, length, start);
  out_.data_length = std::max(out_.data_length, tensor.end);
  if (tensor.begin % kAlignment != 0) out_.misaligned = true;
  out_.tensor_bytes = checked_add(out_.tensor_bytes, length).value_or(std::numeric_limits<std::uint64_t>::max());
  const auto end = checked_add(data_begin_, tensor.end);
  if (!end) throw corrupt("data_offsets beyond the largest file there can be", start);
  tensor.begin += data_begin_;
  tensor.end = *end;
  tensor.shape = shape_;
  if (tensor.dtype == DType::kQFloat) tensor.quant = scheme_;
  out_.table.add(tensor);
}

DType Parser::parse_dtype() {
  for (const NamedType& type : kPlainTypes) {
    if (!cursor_.try_name(type.name)) continue;
    if (type.dtype == DType::kBool) out_.has_plain_bool = true;
    return type.dtype;
  }
  const std::uint64_t start = cursor_.offset();
  if (cursor_.peek() != CborKind::kMap) {
    const DType dtype = find_type(kPlainTypes, cursor_.read_name(), start);
    if (dtype == DType::kBool) out_.has_plain_bool = true;
    return dtype;
  }
  cursor_.enter_map();
  if (!cursor_.next()) throw corrupt("a data type that is an empty map", start);
  const std::string_view name = cursor_.read_name();
  DType dtype = DType::kQFloat;
  if (name == "Bool") {
    dtype = find_type(kBoolStores, cursor_.read_name(), start);
    out_.has_bool_map = true;
  } else if (name == "QFloat") {
    QuantScheme scheme = read_quant_scheme(cursor_, newest_);
    (traits_of(scheme.release).has_two_level_scales ? out_.has_new_scheme : out_.has_old_scheme) = true;
    if (!scheme_ || *scheme_ != scheme) scheme_ = std::make_shared<const QuantScheme>(std::move(scheme));
  } else {
    find_type(kPlainTypes, "{" + std::string(name.substr(0, 64)) + ": ...}", start);
  }
  if (cursor_.next()) throw corrupt("a data type that is a map of more than one entry", start);
  return dtype;
}

void Parser::parse_shape() {
  shape_.clear();
  cursor_.enter_array();
  while (cursor_.next()) {
    if (shape_.size() >= limits_.rank) {
      throw Error(ErrorCode::kLimit, "a shape of more than " + std::to_string(limits_.rank) + " dimensions")
          .at_offset(cursor_.offset());
    }
    // A dimension may be a single byte of CBOR. While a vector that doubles is copied it takes 24 bytes for each.
    if (shape_.size() == shape_.capacity()) shape_.reserve(shape_.size() + shape_.size() / 4 + 8);
    shape_.push_back(cursor_.read_uint());
  }
}

void Parser::parse_data_offsets(std::uint64_t& begin, std::uint64_t& end) {
  const std::uint64_t start = cursor_.offset();
  std::size_t count = 0;
  cursor_.enter_array();
  for (; cursor_.next(); ++count) {
    const std::uint64_t offset = cursor_.read_uint();
    if (count < 2) (count == 0 ? begin : end) = offset;
  }
  if (count != 2) {
    throw corrupt("data_offsets of " + std::to_string(count) + " numbers where there must be two", start);
  }
  if (end < begin) {
    throw corrupt("data_offsets end at " + std::to_string(end) + ", before they begin at " + std::to_string(begin),
                  start);
  }
  if (end - begin > limits_.burnpack_tensor_bytes) {
    throw Error(ErrorCode::kLimit, "a tensor of " + std::to_string(end - begin) + " bytes; the limit is " +
                                       std::to_string(limits_.burnpack_tensor_bytes))
        .at_offset(start);
  }
}

void Parser::check_length(DType dtype, std::uint64_t length, std::uint64_t offset) const {
  if (dtype == DType::kQFloat) {
    // A scheme without a defined length does not make the other tensors of the file unreadable.
    if (payload_fits(*scheme_, shape_, length) || !payload_is_defined(*scheme_, shape_)) return;
    throw corrupt("data_offsets span " + std::to_string(length) + " bytes, but the shape quantized as " +
                      to_string(*scheme_) + " takes " + std::to_string(payload_bytes(*scheme_, shape_)),
                  offset);
  }
  const auto expected = contiguous_bytes(dtype, shape_);
  if (!expected) throw corrupt("a shape of 2^64 bits or more", offset);
  if (*expected != length) {
    throw corrupt("data_offsets span " + std::to_string(length) + " bytes, but shape and data type take " +
                      std::to_string(*expected),
                  offset);
  }
}

TextMap Parser::parse_text() {
  const std::uint64_t start = cursor_.offset();
  std::string key_scratch;
  std::string value_scratch;
  std::size_t entries = 0;
  std::size_t bytes = 0;
  bool has_empty_key = false;
  CborCursor ahead = cursor_;
  ahead.enter_map();
  for (; ahead.next(); ++entries) {
    const std::size_t key_bytes = ahead.read_text(key_scratch).size();
    bytes += key_bytes + ahead.read_text(value_scratch).size();
    // The one key that could come so often that its entries would outweigh the file.
    if (key_bytes == 0 && std::exchange(has_empty_key, true)) throw corrupt("metadata key '' is given twice", start);
  }

  TextMap map;
  map.reserve(entries, bytes);
  cursor_.enter_map();
  while (cursor_.next()) {
    const std::string_view key = cursor_.read_text(key_scratch);
    map.add(key, cursor_.read_text(value_scratch));
  }
  map.sort();
  const std::size_t twice = map.duplicate();
  if (twice != map.size()) throw corrupt("metadata key " + quoted(map.key(twice)) + " is given twice", start);
  return map;
}

ScalarMap Parser::parse_scalars() {
  const std::uint64_t start = cursor_.offset();
  std::string scratch;
  std::size_t entries = 0;
  std::size_t bytes = 0;
  CborCursor ahead = cursor_;
  ahead.enter_map();
  for (; ahead.next(); ++entries) {
    bytes += ahead.read_text(scratch).size();
    ahead.skip_value();
  }

  ScalarMap map;
  map.reserve(entries, bytes);
  cursor_.enter_map();
  while (cursor_.next()) {
    const std::string_view name = cursor_.read_text(scratch);
    map.add(name, parse_scalar());
  }
  map.sort();
  const std::size_t twice = map.duplicate();
  if (twice != map.size()) throw corrupt("scalar " + quoted(map.name(twice)) + " is given twice", start);
  return map;
}

Scalar Parser::parse_scalar() {
  const std::uint64_t start = cursor_.offset();
  cursor_.enter_map();
  if (!cursor_.next()) throw corrupt("a scalar that is an empty map", start);
  const std::string_view type = cursor_.read_name();
  Scalar scalar;
  if (type == "Int") {
    scalar = cursor_.read_int();
  } else if (type == "UInt") {
    scalar = cursor_.read_uint();
  } else if (type == "Float") {
    scalar = cursor_.read_float();
  } else if (type == "Bool") {
    scalar = cursor_.read_bool();
  } else {
    throw Error(ErrorCode::kUnsupported, "a scalar of unknown type " + quoted(type)).at_offset(start);
  }
  if (cursor_.next()) throw corrupt("a scalar that is a map of more than one entry", start);
  return scalar;
}

}  // namespace

Metadata parse_metadata(const HeaderText& cbor, std::uint64_t first_offset, std::uint64_t data_begin,
                        const Limits& limits, BurnRelease newest) {
  return Parser(cbor, first_offset, data_begin, limits, newest).parse();
}

}  // namespace weightstore::burnpack
