#include "formats/burnpack/quant_cbor.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>

#include "formats/burnpack/field_names.h"
#include "weightstore/error.h"

namespace weightstore::burnpack {
namespace {

enum Field { kValue, kParam, kStore, kLevel, kMode, kTensor, kBlock };
constexpr std::string_view kFields[] = {"value", "param", "store", "level", "mode", "tensor", "block"};

enum BlockSizeField { kStorage, kLength };
constexpr std::string_view kBlockSizeFields[] = {"storage", "len"};

enum BlockScaleField { kSize, kScaleType };
constexpr std::string_view kBlockScaleFields[] = {"size", "dtype"};

// What 0.19 calls PackedU32 along the last dimension. Its CPU backend cannot save such a tensor.
constexpr std::string_view kOldStore = "U32";

[[noreturn]] void fail_unknown(const char* what, std::string_view name, std::uint64_t offset) {
  throw Error(ErrorCode::kUnsupported,
              std::string("quantization scheme with unknown ") + what + " '" + std::string(name.substr(0, 64)) + "'")
      .at_offset(offset);
}

template <class E>
E read_enum(CborCursor& cursor, std::span<const std::string_view> names, const char* what) {
  const std::uint64_t start = cursor.offset();
  const std::string_view name = cursor.read_name();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) fail_unknown(what, name, start);
  return static_cast<E>(found - names.begin());
}

// Whether the next item is null; a null is passed over.
bool read_absent(CborCursor& cursor) {
  if (cursor.peek() != CborKind::kNull) return false;
  cursor.read_null();
  return true;
}

// Enters the one-entry map that stands for a variant with a payload, and reads the variant's name.
std::string_view enter_variant(CborCursor& cursor) {
  const std::uint64_t start = cursor.offset();
  cursor.enter_map();
  if (!cursor.next()) throw Error(ErrorCode::kCorrupt, "a map of one entry expected, found none").at_offset(start);
  return cursor.read_name();
}

void leave_variant(CborCursor& cursor) {
  const std::uint64_t here = cursor.offset();
  if (cursor.next()) throw Error(ErrorCode::kCorrupt, "a map of one entry expected, found more").at_offset(here);
}

// Returns whether the store is spelled as only 0.19 spells it.
bool read_store(CborCursor& cursor, QuantScheme& scheme) {
  const std::uint64_t start = cursor.offset();
  if (cursor.peek() == CborKind::kText) {
    const std::string_view name = cursor.read_name();
    if (name == kOldStore) {
      scheme.store = QuantStore::kPackedU32;
    } else if (name == kQuantStores[0]) {
      scheme.store = QuantStore::kNative;
    } else {
      fail_unknown("store", name, start);
    }
    scheme.packed_dim = 0;
    return name == kOldStore;
  }
  const std::string_view name = enter_variant(cursor);
  if (name == kQuantStores[1]) {
    scheme.store = QuantStore::kPackedNative;
  } else if (name == kQuantStores[2]) {
    scheme.store = QuantStore::kPackedU32;
  } else {
    fail_unknown("store", name, start);
  }
  scheme.packed_dim = cursor.read_uint();
  leave_variant(cursor);
  return false;
}

// Five numbers, of which the first `len` count. None at all means blocks of one element.
std::vector<std::uint8_t> read_block_size(CborCursor& cursor) {
  const std::uint64_t start = cursor.offset();
  std::array<std::uint64_t, kMaxBlockDims> storage{};
  std::size_t count = 0;
  std::uint64_t length = 0;
  FieldNames names(kBlockSizeFields);
  cursor.enter_map();
  while (cursor.next()) {
    switch (names.read(cursor)) {
      case kStorage:
        cursor.enter_array();
        for (; cursor.next(); ++count) {
          const std::uint64_t number = cursor.read_uint();
          if (count == storage.size() || number > UINT8_MAX) {
            throw Error(ErrorCode::kCorrupt, "a block size is five numbers up to 255").at_offset(start);
          }
          storage[count] = number;
        }
        break;
      case kLength:
        length = cursor.read_uint();
        break;
      default:
        cursor.skip_value();
    }
  }
  names.require(kStorage, cursor);
  names.require(kLength, cursor);
  names.check_unknown(cursor);
  if (count != storage.size() || length > storage.size()) {
    throw Error(ErrorCode::kCorrupt, "a block size has five numbers and a length up to five, found " +
                                         std::to_string(count) + " and " + std::to_string(length))
        .at_offset(start);
  }
  std::vector<std::uint8_t> block;
  for (std::size_t i = 0; i < length; ++i) {
    if (storage[i] == 0) throw Error(ErrorCode::kCorrupt, "a block of no elements").at_offset(start);
    block.push_back(static_cast<std::uint8_t>(storage[i]));
  }
  if (block.empty()) block.push_back(1);
  return block;
}

void read_level(CborCursor& cursor, QuantScheme& scheme) {
  const std::uint64_t start = cursor.offset();
  if (cursor.peek() == CborKind::kText) {
    const std::string_view name = cursor.read_name();
    if (name != "Tensor") fail_unknown("level", name, start);
    return;
  }
  const std::string_view name = enter_variant(cursor);
  if (name != "Block") fail_unknown("level", name, start);
  scheme.block = read_block_size(cursor);
  leave_variant(cursor);
}

void read_block_scale(CborCursor& cursor, QuantScheme& scheme) {
  if (read_absent(cursor)) return;
  FieldNames names(kBlockScaleFields);
  cursor.enter_map();
  while (cursor.next()) {
    switch (names.read(cursor)) {
      case kSize:
        scheme.block = read_block_size(cursor);
        break;
      case kScaleType:
        scheme.block_scale = read_enum<QuantParam>(cursor, kQuantParams, "scale type");
        break;
      default:
        cursor.skip_value();
    }
  }
  names.require(kSize, cursor);
  names.require(kScaleType, cursor);
  names.check_unknown(cursor);
}

void write_block_size(CborWriter& writer, const QuantScheme& scheme) {
  // 0.22 leaves out leading ones, all of them; before, there is always a number.
  const bool is_new = traits_of(scheme.release).has_two_level_scales;
  const auto first = is_new && scheme.block == std::vector<std::uint8_t>{1} ? scheme.block.end() : scheme.block.begin();
  const auto length = static_cast<std::size_t>(scheme.block.end() - first);
  writer.begin_map(2);
  writer.write_text(kBlockSizeFields[kStorage]);
  writer.begin_array(kMaxBlockDims);
  for (std::size_t i = 0; i < kMaxBlockDims; ++i) {
    writer.write_uint(i < length ? first[static_cast<std::ptrdiff_t>(i)] : 1);
  }
  writer.write_text(kBlockSizeFields[kLength]);
  writer.write_uint(length);
}

template <class E>
void write_enum(CborWriter& writer, Field field, std::span<const std::string_view> names, E value) {
  writer.write_text(kFields[field]);
  writer.write_text(names[static_cast<std::size_t>(value)]);
}

void write_store(CborWriter& writer, const QuantScheme& scheme) {
  writer.write_text(kFields[kStore]);
  const std::string_view name = kQuantStores[static_cast<std::size_t>(scheme.store)];
  if (scheme.store == QuantStore::kNative) {
    writer.write_text(name);
  } else {
    writer.begin_map(1);
    writer.write_text(name);
    writer.write_uint(scheme.packed_dim);
  }
}

}  // namespace

QuantScheme read_quant_scheme(CborCursor& cursor, BurnRelease newest) {
  const std::uint64_t start = cursor.offset();
  QuantScheme scheme;
  scheme.tensor_scale.reset();
  QuantParam param = QuantParam::kF32;
  bool old_store = false;
  FieldNames names(kFields);
  cursor.enter_map();
  while (cursor.next()) {
    switch (names.read(cursor)) {
      case kValue:
        scheme.value = read_enum<QuantValue>(cursor, kQuantValues, "value type");
        break;
      case kParam:
        param = read_enum<QuantParam>(cursor, kQuantParams, "scale type");
        break;
      case kStore:
        old_store = read_store(cursor, scheme);
        break;
      case kLevel:
        read_level(cursor, scheme);
        break;
      case kMode:
        scheme.mode = read_enum<QuantMode>(cursor, kQuantModes, "mode");
        break;
      case kTensor:
        if (!read_absent(cursor)) scheme.tensor_scale = read_enum<QuantParam>(cursor, kQuantParams, "scale type");
        break;
      case kBlock:
        read_block_scale(cursor, scheme);
        break;
      default:
        cursor.skip_value();
    }
  }
  names.require(kValue, cursor);
  names.require(kStore, cursor);
  names.require(kMode, cursor);
  names.check_unknown(cursor);
  const bool old_fields = names.has(kParam) || names.has(kLevel);
  const bool new_fields = names.has(kTensor) || names.has(kBlock);
  if ((old_fields && new_fields) || (old_store && !old_fields)) {
    throw Error(ErrorCode::kCorrupt, "quantization scheme with fields of different Burn releases").at_offset(start);
  }
  if (!old_fields) {
    scheme.release = newest;
    return scheme;
  }
  names.require(kParam, cursor);
  names.require(kLevel, cursor);
  if (scheme.mode != QuantMode::kSymmetric) fail_unknown("mode", "Lookup", start);
  (scheme.block.empty() ? scheme.tensor_scale : scheme.block_scale) = param;
  return scheme;
}

void write_quant_scheme(CborWriter& writer, const QuantScheme& scheme) {
  writer.begin_map(5);
  write_enum(writer, kValue, kQuantValues, scheme.value);
  if (traits_of(scheme.release).has_two_level_scales) {
    write_store(writer, scheme);
    write_enum(writer, kMode, kQuantModes, scheme.mode);
    if (scheme.tensor_scale) {
      write_enum(writer, kTensor, kQuantParams, *scheme.tensor_scale);
    } else {
      writer.write_text(kFields[kTensor]);
      writer.write_null();
    }
    writer.write_text(kFields[kBlock]);
    if (!scheme.block_scale) {
      writer.write_null();
      return;
    }
    writer.begin_map(2);
    writer.write_text(kBlockScaleFields[kSize]);
    write_block_size(writer, scheme);
    writer.write_text(kBlockScaleFields[kScaleType]);
    writer.write_text(kQuantParams[static_cast<std::size_t>(*scheme.block_scale)]);
    return;
  }
  write_enum(writer, kParam, kQuantParams, scheme.block_scale ? *scheme.block_scale : *scheme.tensor_scale);
  write_store(writer, scheme);
  writer.write_text(kFields[kLevel]);
  if (scheme.block_scale) {
    writer.begin_map(1);
    writer.write_text("Block");
    write_block_size(writer, scheme);
  } else {
    writer.write_text("Tensor");
  }
  write_enum(writer, kMode, kQuantModes, scheme.mode);
}

}  // namespace weightstore::burnpack
