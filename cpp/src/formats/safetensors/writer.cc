// Byte-identical to the reference for no or one metadata key; more keys are written in order, where the reference's
// order is random.

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/little_endian.h"
#include "base/name_set.h"
#include "base/utf8.h"
#include "codec/json.h"
#include "formats/safetensors/header.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"

namespace weightstore::safetensors {
namespace {

void check_tensor(const NewTensor& tensor) try {
  if (!is_utf8(tensor.name)) throw Error(ErrorCode::kInvalidArgument, "the name is not UTF-8");
  if (tensor.name == kMetadataKey) {
    throw Error(ErrorCode::kInvalidArgument, "the name is reserved for the file's metadata; rename the tensor");
  }
  if (!in_safetensors(tensor.dtype)) {
    throw Error(ErrorCode::kUnsupported, "SafeTensors has no type for " + std::string(name_of(tensor.dtype)) +
                                             "; write Burnpack, or convert it");
  }
  const auto expected = contiguous_bytes(tensor.dtype, tensor.shape);
  if (!expected && is_misaligned(tensor.dtype, tensor.shape)) {
    throw Error(ErrorCode::kInvalidArgument,
                "its elements of " + std::to_string(bits_of(tensor.dtype)) + " bits do not end on a whole byte")
        .known_as(kMisalignedText);
  }
  if (!expected) {
    throw Error(ErrorCode::kInvalidArgument, "its size overflows 64 bits")
        .known_as("overflow computing buffer size from shape and/or element type");
  }
  if (tensor.bytes->size() != *expected) {
    throw Error(ErrorCode::kInvalidArgument, "shape and dtype need " + std::to_string(*expected) +
                                                 " bytes, its data has " + std::to_string(tensor.bytes->size()));
  }
} catch (Error& error) {
  error.in_tensor(tensor.name);
  throw;
}

void check_tensors(const FileContents& contents) {
  if (contents.scalars().size() > 0) {
    throw Error(ErrorCode::kUnsupported, "SafeTensors has no scalars; write Burnpack, or keep them as metadata");
  }
  const std::vector<NewTensor>& tensors = contents.tensors();
  NameSet names(tensors.size(), [&](std::size_t i) { return std::string_view(tensors[i].name); });
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_tensor(tensors[i]);
    if (names.add(i)) {
      throw Error(ErrorCode::kInvalidArgument, "the name is given twice").in_tensor(tensors[i].name);
    }
  }
}

void check_metadata(const TextMap& sorted) {
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (!is_utf8(sorted.key(i)) || !is_utf8(sorted.value(i))) {
      throw Error(ErrorCode::kInvalidArgument, "metadata that is not UTF-8");
    }
  }
  if (const std::size_t i = sorted.duplicate(); i < sorted.size()) {
    throw Error(ErrorCode::kInvalidArgument, "the metadata key '" + printable(sorted.key(i)) + "' is given twice");
  }
}

std::vector<std::size_t> order_of(const std::vector<NewTensor>& tensors, TensorOrder order) {
  std::vector<std::size_t> numbers(tensors.size());
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  if (order == TensorOrder::kAsAdded) return numbers;
  const auto comes_first = [&](std::size_t a, std::size_t b) {
    if (tensors[a].dtype != tensors[b].dtype) return tensors[a].dtype > tensors[b].dtype;
    return tensors[a].name < tensors[b].name;
  };
  // Names of a module often have their order already, and to see that is much cheaper than to sort.
  if (!std::is_sorted(numbers.begin(), numbers.end(), comes_first)) {
    std::sort(numbers.begin(), numbers.end(), comes_first);
  }
  return numbers;
}

void append_metadata(std::string& json, const TextMap& metadata) {
  TextMap sorted = metadata;
  sorted.sort();
  check_metadata(sorted);
  append_json_string(json, kMetadataKey);
  json += ":{";
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (i > 0) json.push_back(',');
    append_json_string(json, sorted.key(i));
    json.push_back(':');
    append_json_string(json, sorted.value(i));
  }
  json += "},";
}

// std::to_string() makes a string for each number.
void append_number(std::string& json, std::uint64_t number) {
  char digits[20];  // of the largest number
  json.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

void append_tensor(std::string& json, const NewTensor& tensor, std::uint64_t begin, std::uint64_t end) {
  append_json_string(json, tensor.name);
  json += ":{\"dtype\":\"";
  json += name_of(tensor.dtype);
  json += "\",\"shape\":[";
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (i > 0) json.push_back(',');
    append_number(json, tensor.shape[i]);
  }
  json += "],\"data_offsets\":[";
  append_number(json, begin);
  json.push_back(',');
  append_number(json, end);
  json += "]},";
}

}  // namespace

Layout plan(const FileContents& contents, TensorOrder order) try {
  check_tensors(contents);
  Layout layout;
  std::string json = "{";
  if (contents.metadata()) append_metadata(json, *contents.metadata());
  std::uint64_t position = 0;
  layout.placements.reserve(contents.tensors().size());
  for (const std::size_t number : order_of(contents.tensors(), order)) {
    const NewTensor& tensor = contents.tensors()[number];
    const auto end = checked_add(position, tensor.bytes->size());
    if (!end || *end > kMaxFileBytes)
      throw Error(ErrorCode::kLimit, "the data exceeds 2^62 bytes").in_tensor(tensor.name);
    append_tensor(json, tensor, position, *end);
    layout.placements.push_back({number, position, *end});
    position = *end;
  }
  if (json.back() == ',') json.pop_back();
  json.push_back('}');
  json.append((kHeaderAlignment - json.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  if (json.size() > kMaxHeaderBytes) {
    throw Error(ErrorCode::kLimit, "the header would have " + std::to_string(json.size()) +
                                       " bytes, the format's limit is " + std::to_string(kMaxHeaderBytes) +
                                       "; write fewer tensors or shorter metadata")
        .known_as("header too large");
  }

  append_little_endian(layout.header, json.size(), kLengthBytes);
  layout.header += json;
  for (Layout::Placement& placement : layout.placements) {
    placement.begin += layout.header.size();
    placement.end += layout.header.size();
  }
  layout.file_size = layout.header.size() + position;
  return layout;
} catch (Error& error) {
  error.of_format(Format::kSafetensors);
  throw;
}

}  // namespace weightstore::safetensors
