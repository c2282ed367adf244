#include "formats/gguf/reader.h"

#include <bit>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/corrupt.h"
#include "base/little_endian.h"
#include "base/strided/strided_source.h"
#include "base/utf8.h"
#include "formats/gguf/header.h"
#include "formats/gguf/split.h"
#include "formats/gguf/swapped_blocks.h"
#include "formats/gguf/tensor_types.h"
#include "weightstore/error.h"

namespace weightstore::gguf {
namespace {

std::uint64_t alignment_of(const TypedMetadata& metadata) {
  const auto entry = metadata.find(kAlignmentKey);
  if (!entry) return kDefaultAlignment;
  const MetadataView value = metadata.value(*entry);
  if (value.type() != MetadataType::kUint32) {
    throw corrupt("general.alignment is a UINT32; here it is " + value.type_name());
  }
  const std::uint64_t alignment = std::get<std::uint64_t>(value.scalar());
  if (std::has_single_bit(alignment)) return alignment;
  throw corrupt("general.alignment is " + std::to_string(alignment) + "; it is a power of two");
}

// Numbers, booleans and text of the metadata, for callers that take only text.
TextMap scalars_as_text(const TypedMetadata& metadata) {
  TextMap text;
  for (std::size_t i = 0; i < metadata.size(); ++i) {
    if (const auto value = as_text(metadata.value(i))) text.add(metadata.key(i), *value);
  }
  text.sort();
  return text;
}

// The descriptions of tensors, one after the other. read_header() has checked that all are there.
class TensorCursor {
 public:
  TensorCursor(const Header& header, std::uint64_t data_begin, std::uint64_t alignment, std::uint64_t file_bytes,
               const Limits& limits)
      : text_(header.text.get(), header.size),
        at_(header.tensors_begin),
        data_begin_(data_begin),
        alignment_(alignment),
        file_bytes_(file_bytes),
        limits_(limits) {}

  // The next tensor. `shape` has its dimensions until the next call.
  TensorTable::Row next(Shape& shape) {
    TensorTable::Row row;
    const std::uint64_t begin = at_;
    const std::uint64_t name_length = number(8);
    row.name = std::string_view(text_).substr(at_, name_length);
    at_ += name_length;
    try {
      read(row, shape);
    } catch (Error& error) {
      throw error.in_tensor(row.name.substr(0, 1024)).at_offset(begin);
    }
    return row;
  }

 private:
  std::uint64_t number(std::size_t width) {
    const std::uint64_t n = load_little_endian(text_.substr(at_, width));
    at_ += width;
    return n;
  }

  void read(TensorTable::Row& row, Shape& shape) {
    if (row.name.find('\0') != row.name.npos || !is_utf8(row.name)) {
      throw corrupt("the name of a tensor has a NUL, or is not UTF-8");
    }
    const std::uint64_t rank = number(4);
    if (rank > limits_.rank) {
      throw Error(ErrorCode::kLimit,
                  "has " + std::to_string(rank) + " dimensions; the limit is " + std::to_string(limits_.rank));
    }
    shape.resize(static_cast<std::size_t>(rank));
    for (std::size_t i = shape.size(); i-- > 0;) shape[i] = number(8);
    row.shape = shape;
    const auto type = static_cast<std::uint32_t>(number(4));
    const auto dtype = type_of_number(type);
    if (!dtype) {
      throw Error(ErrorCode::kUnsupported, "its type has the number " + std::to_string(type) +
                                               ", which this library does not know, or which ggml has removed");
    }
    row.dtype = *dtype;
    place(row, number(8));
  }

  void place(TensorTable::Row& row, std::uint64_t offset) const {
    const auto size = contiguous_bytes(row.dtype, row.shape);
    if (!size) throw corrupt(why_no_size(row));
    if (offset % alignment_ != 0) {
      throw corrupt("its data begin at " + std::to_string(offset) + ", which is not a multiple of the alignment " +
                    std::to_string(alignment_));
    }
    const auto begin = checked_add(data_begin_, offset);
    const auto end = begin ? checked_add(*begin, *size) : std::nullopt;
    if (!end || *end > file_bytes_) {
      throw corrupt("its " + std::to_string(*size) + " bytes at " + std::to_string(offset) +
                    " of the data end beyond the file, which has " + std::to_string(file_bytes_) +
                    " bytes and whose data begin at " + std::to_string(data_begin_) +
                    "; it is damaged, or was cut short");
    }
    row.begin = *begin;
    row.end = *end;
  }

  static std::string why_no_size(const TensorTable::Row& row) {
    const auto block = block_of(row.dtype);
    if (block && (row.shape.empty() || row.shape.back() % block->elements != 0)) {
      const std::uint64_t found = row.shape.empty() ? 1 : row.shape.back();
      return "its rows have " + std::to_string(found) + " elements, which are not whole blocks of " +
             std::to_string(block->elements) + ", as " + std::string(name_of(row.dtype)) + " needs";
    }
    return "the product of its dimensions is too large";
  }

  const std::string_view text_;
  std::uint64_t at_;
  const std::uint64_t data_begin_;
  const std::uint64_t alignment_;
  const std::uint64_t file_bytes_;
  const Limits& limits_;
};

// `table` is finished, so that its tensors are in the order of their data.
void check_disjoint(const TensorTable& table) {
  std::uint64_t end = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.nbytes(i) == 0) continue;
    if (table.begin(i) < end) {
      throw corrupt("its data begin at byte " + std::to_string(table.begin(i)) + ", where those of '" +
                    printable(table.name(last)) + "' end at " + std::to_string(end))
          .in_tensor(table.name(i).substr(0, 1024));
    }
    end = table.begin(i) + table.nbytes(i);
    last = i;
  }
}

std::shared_ptr<const ByteSource> swapped_numbers(std::shared_ptr<const ByteSource> file, const TensorInfo& info) {
  StridedElements elements;
  elements.begin = info.begin;
  elements.item_bytes = bits_of(info.dtype) / 8;
  elements.swap_bytes = elements.item_bytes;
  elements.dims = {{info.nbytes() / elements.item_bytes, static_cast<std::int64_t>(elements.item_bytes)}};
  return strided_source(std::move(file), std::move(elements));
}

// The same tensors, in sources that turn their numbers around.
TensorTable swapped(const TensorTable& table, const std::shared_ptr<const ByteSource>& file) {
  TensorTable result;
  result.reserve(table.size());
  result.add_source(file);
  for (std::size_t i = 0; i < table.size(); ++i) {
    const TensorInfo info = table[i];
    TensorTable::Row row{table.name(i), info.dtype, info.shape, 0, info.begin, info.end, {}, {}};
    std::shared_ptr<const ByteSource> own;
    if (info.nbytes() != 0 && has_swapped_blocks(info.dtype)) {
      own = swapped_blocks(file, info.begin, info.nbytes(), info.dtype);
    } else if (info.nbytes() != 0 && bits_of(info.dtype) > 8) {
      own = swapped_numbers(file, info);
    }
    if (own != nullptr) {
      row.source = result.add_source(std::move(own));
      row.begin = 0;
      row.end = info.nbytes();
    }
    result.add(row);
  }
  result.finish();
  return result;
}

OpenedFile read(const std::shared_ptr<const ByteSource>& source, const ReadOptions& options) {
  Header header = read_header(*source, options.limits);
  auto metadata = std::make_shared<const TypedMetadata>(header.text, static_cast<std::size_t>(header.size),
                                                        std::move(header.metadata));
  const std::uint64_t alignment = alignment_of(*metadata);
  // A file without tensors may end before its data would begin.
  const std::uint64_t data_begin = checked_round_up(header.size, alignment).value_or(UINT64_MAX);
  TensorTable table;
  table.reserve(static_cast<std::size_t>(header.tensors));
  table.add_source(source);
  TensorCursor in(header, data_begin, alignment, source->size(), options.limits);
  Shape shape;
  for (std::uint64_t i = 0; i < header.tensors; ++i) table.add(in.next(shape));
  table.finish();
  check_disjoint(table);
  if (header.is_big_endian) table = swapped(table, source);
  table.set_metadata(scalars_as_text(*metadata));
  OpenedFile file{.table = std::move(table), .part = split_part(*metadata)};
  file.table.set_typed_metadata(std::move(metadata));
  return file;
}

}  // namespace

OpenedFile open(std::shared_ptr<const ByteSource> source, const ReadOptions& options) {
  try {
    return read(source, options);
  } catch (Error& error) {
    error.of_format(Format::kGguf);
    throw;
  }
}

}  // namespace weightstore::gguf
