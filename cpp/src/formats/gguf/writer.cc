#include "formats/gguf/writer.h"

#include <bit>
#include <string>
#include <utility>

#include "base/checked.h"
#include "base/little_endian.h"
#include "base/name_set.h"
#include "base/utf8.h"
#include "formats/gguf/header.h"
#include "formats/gguf/tensor_types.h"
#include "weightstore/error.h"
#include "weightstore/read_options.h"

namespace weightstore::gguf {
namespace {

// ggml's limits: a name with the zero behind it has 64 bytes.
constexpr std::size_t kMostNameBytes = 63;
constexpr std::size_t kMostDimensions = 4;

Error invalid(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

void append_text(std::string& out, std::string_view text) {
  append_little_endian(out, text.size(), 8);
  out += text;
}

std::uint64_t alignment_of(const TypedMetadata& metadata) {
  const auto entry = metadata.find(kAlignmentKey);
  if (!entry) return kDefaultAlignment;
  const MetadataView value = metadata.value(*entry);
  const std::uint64_t alignment = value.type() == MetadataType::kUint32 ? std::get<std::uint64_t>(value.scalar()) : 0;
  if (std::has_single_bit(alignment)) return alignment;
  throw invalid("general.alignment is a UINT32 and a power of two; here it is " + as_text(value).value_or("an array") +
                " (" + value.type_name() + ")");
}

void check_text_entry(std::string_view key, std::string_view value) {
  const char* problem = key.size() > kMaxMetadataKey       ? "has a key of more than 65535 bytes"
                        : key.find('\0') != key.npos       ? "has a NUL in its key"
                        : !is_utf8(key) || !is_utf8(value) ? "is not UTF-8"
                                                           : nullptr;
  if (problem != nullptr) throw invalid("the metadata entry '" + printable(key) + "' " + problem);
}

// Appends all entries to `out` and returns their number.
std::uint64_t append_metadata(std::string& out, const TypedMetadata& typed, const TextMap& text) {
  for (std::size_t i = 0; i < typed.size(); ++i) {
    append_text(out, typed.key(i));
    append_little_endian(out, static_cast<std::uint64_t>(typed.value(i).type()), 4);
    out += typed.value(i).encoded();
  }
  std::uint64_t count = typed.size();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (typed.size() != 0 && typed.find(text.key(i))) continue;
    check_text_entry(text.key(i), text.value(i));
    append_text(out, text.key(i));
    append_little_endian(out, static_cast<std::uint64_t>(MetadataType::kString), 4);
    append_text(out, text.value(i));
    ++count;
  }
  return count;
}

// The bytes of a tensor, which the format can hold.
std::uint64_t checked_size(const NewTensor& tensor) {
  if (tensor.name.size() > kMostNameBytes) {
    throw invalid("its name has " + std::to_string(tensor.name.size()) + " bytes; GGUF allows " +
                  std::to_string(kMostNameBytes) + ". Rename it");
  }
  if (tensor.name.find('\0') != std::string::npos || !is_utf8(tensor.name)) {
    throw invalid("its name has a NUL, or is not UTF-8");
  }
  if (tensor.shape.size() > kMostDimensions) {
    throw invalid("has " + std::to_string(tensor.shape.size()) + " dimensions; GGUF allows " +
                  std::to_string(kMostDimensions));
  }
  if (!number_of_type(tensor.dtype)) {
    throw invalid("its type " + std::string(name_of(tensor.dtype)) + " does not exist in GGUF; change its type first");
  }
  const auto size = contiguous_bytes(tensor.dtype, tensor.shape);
  if (!size) {
    throw invalid(block_of(tensor.dtype) ? "its rows are not whole blocks of " + std::string(name_of(tensor.dtype))
                                         : "the product of its dimensions is too large");
  }
  if (*size != tensor.bytes->size()) {
    throw invalid("has " + std::to_string(tensor.bytes->size()) + " bytes where its type and shape need " +
                  std::to_string(*size));
  }
  return *size;
}

void append_tensor(std::string& out, const NewTensor& tensor, std::uint64_t offset) {
  append_text(out, tensor.name);
  append_little_endian(out, tensor.shape.size(), 4);
  for (std::size_t i = tensor.shape.size(); i-- > 0;) append_little_endian(out, tensor.shape[i], 8);
  append_little_endian(out, *number_of_type(tensor.dtype), 4);
  append_little_endian(out, offset, 8);
}

void check_names(const std::vector<NewTensor>& tensors) {
  NameSet seen(tensors.size(), [&](std::size_t i) { return std::string_view(tensors[i].name); });
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (seen.add(i)) throw invalid("the name is given twice").in_tensor(tensors[i].name);
  }
}

std::uint64_t rounded_up(std::uint64_t n, std::uint64_t alignment) {
  if (const auto rounded = checked_round_up(n, alignment)) return *rounded;
  throw Error(ErrorCode::kLimit, "the tensors together are too large for a file");
}

}  // namespace

Layout plan(const FileContents& contents) {
  static const TypedMetadata kNone;
  const std::vector<NewTensor>& tensors = contents.tensors();
  const TypedMetadata& typed = contents.typed_metadata() != nullptr ? *contents.typed_metadata() : kNone;
  const std::uint64_t alignment = alignment_of(typed);
  if (contents.scalars().size() > 0) {
    throw Error(ErrorCode::kUnsupported, "GGUF has no scalars beside its metadata; write Burnpack, or keep them there");
  }
  check_names(tensors);

  std::string metadata;
  const std::uint64_t entries = append_metadata(metadata, typed, contents.metadata().value_or(TextMap()));
  Layout layout;
  layout.header = kMagic;
  append_little_endian(layout.header, kVersion, 4);
  append_little_endian(layout.header, tensors.size(), 8);
  append_little_endian(layout.header, entries, 8);
  layout.header += metadata;
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    try {
      const std::uint64_t size = checked_size(tensors[i]);
      append_tensor(layout.header, tensors[i], offset);
      layout.placements.push_back({i, offset, offset + size});
      offset = rounded_up(offset + size, alignment);
    } catch (Error& error) {
      throw error.in_tensor(tensors[i].name);
    }
  }
  if (layout.header.size() > Limits().gguf_header_bytes) {
    throw Error(ErrorCode::kLimit, "the header would have " + std::to_string(layout.header.size()) +
                                       " bytes; the limit is " + std::to_string(Limits().gguf_header_bytes));
  }
  const std::uint64_t data_begin = rounded_up(layout.header.size(), alignment);
  for (Layout::Placement& placement : layout.placements) {
    placement.begin += data_begin;
    placement.end += data_begin;
  }
  // The data of every tensor is followed by zeros up to the alignment, also that of the last one.
  layout.file_size = data_begin + offset;
  return layout;
}

}  // namespace weightstore::gguf
