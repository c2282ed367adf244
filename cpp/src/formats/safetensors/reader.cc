// docs/formats.md, "SafeTensors". Strict: the header is one JSON object, the tensors tile the data section without hole
// or overlap, and nothing follows them.

#include <memory>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/little_endian.h"
#include "codec/json.h"
#include "formats/header_window.h"
#include "formats/safetensors/header.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"

namespace weightstore::safetensors {
namespace {

Error corrupt(const std::string& message, const char* reference_text) {
  return Error(ErrorCode::kCorrupt, message).known_as(reference_text);
}

std::string bytes_text(std::uint64_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

// Checks the length before the header; returns that of the header.
std::size_t read_length(const ByteSource& source, const Limits& limits) {
  if (source.size() < kLengthBytes) {
    throw corrupt("the file has " + bytes_text(source.size()) +
                      "; a SafeTensors file begins with an 8-byte length, so this one is "
                      "truncated or not SafeTensors",
                  "header too small");
  }
  std::array<std::byte, kLengthBytes> prefix;
  source.read_at(0, prefix);
  const auto length = load_little_endian<std::uint64_t>(prefix.data());
  if (length > limits.safetensors_header_bytes) {
    throw Error(ErrorCode::kLimit, "the header claims " + bytes_text(length) + ", the limit is " +
                                       std::to_string(limits.safetensors_header_bytes))
        .at_offset(0)
        .known_as("header too large");
  }
  if (length > source.size() - kLengthBytes) {
    throw corrupt("the header claims " + bytes_text(length) + ", but only " +
                      std::to_string(source.size() - kLengthBytes) +
                      " follow; the file is truncated or not SafeTensors",
                  "invalid header length")
        .at_offset(0);
  }
  return static_cast<std::size_t>(length);
}

class HeaderParser {
 public:
  HeaderParser(const ByteSource& source, std::size_t header_size, const Limits& limits, TensorTable& table)
      : window_(source, kLengthBytes, header_size),
        cursor_(window_.text()),
        data_begin_(kLengthBytes + header_size),
        data_size_(source.size() - data_begin_),
        max_rank_(limits.rank),
        table_(table) {}

  void parse() {
    step([&] { cursor_.begin_object(); });
    for (bool more = true; more;) step([&] { more = parse_member(); });
    for (cursor_.expect_end(); window_.has_more(); cursor_.expect_end()) advance();
  }

 private:
  static constexpr std::size_t kUsualMember = 4096;  // hardly any member of a header is longer

  // Takes a step of parsing in a text that is long enough for it. A step ends with a byte that ends a part of the
  // header, whatever follows, and changes nothing else than cursor_ if it throws.
  template <class Step>
  void step(const Step& take) {
    if (window_.has_more() && cursor_.rest().size() < kUsualMember) advance();
    for (;;) {
      const JsonCursor before = cursor_;
      try {
        return take();
      } catch (const Error&) {
        if (!window_.has_more() || !cursor_.at_end_of_part()) throw;
      }
      cursor_ = before;
      advance();
    }
  }

  void advance() {
    window_.advance(window_.text().size() - cursor_.rest().size());
    cursor_.continue_in(window_.text());
  }

  // Reads a key and its value. False at the end of the header.
  bool parse_member() {
    std::string_view name;
    if (!cursor_.next_key(name, name_scratch_)) return false;
    if (name != kMetadataKey) {
      parse_tensor(name);
    } else if (metadata_seen_) {
      cursor_.fail("duplicate key '__metadata__'");
    } else {
      if (!cursor_.consume_null()) parse_metadata();
      metadata_seen_ = true;
    }
    return true;
  }

  void parse_metadata() {
    TextMap metadata;
    cursor_.begin_object();
    std::string_view key;
    while (cursor_.next_key(key, name_scratch_)) {
      if (cursor_.peek() != '"') cursor_.fail("metadata '" + printable(key) + "' is not a string");
      metadata.add(key, cursor_.read_string(scratch_));
    }
    metadata.sort();
    if (const std::size_t i = metadata.duplicate(); i < metadata.size()) {
      cursor_.fail("duplicate metadata key '" + printable(metadata.key(i)) + "'");
    }
    table_.set_metadata(std::move(metadata));
  }

  void parse_tensor(std::string_view name) try {
    TensorTable::Row tensor;
    tensor.name = name;
    if (!parse_usual_fields(tensor)) parse_fields(tensor);
    tensor.shape = shape_;
    check_size(tensor);
    // In bounds, so that no sum below can overflow; that the ranges tile the section is checked when all are known.
    if (!range_within(tensor.begin, tensor.end, data_size_)) throw not_in_data(tensor);
    tensor.begin += data_begin_;
    tensor.end += data_begin_;
    table_.add(tensor);
  } catch (Error& error) {
    error.in_tensor(name);
    throw;
  }

  Error not_in_data(const TensorTable::Row& tensor) const {
    const std::string range = "data_offsets [" + std::to_string(tensor.begin) + ", " + std::to_string(tensor.end) + ")";
    if (tensor.begin > tensor.end) {
      return Error(ErrorCode::kCorrupt, range + " end before they begin")
          .known_as("invalid offset for tensor `" + printable(tensor.name) + "`");
    }
    return Error(ErrorCode::kCorrupt, range + " lie beyond the data section, which has " + bytes_text(data_size_) +
                                          "; the file is truncated (download or copy it again), or its header is wrong")
        .known_as("incomplete metadata, file not fully covered");
  }

  // The fields as nearly every writer puts them: this order, these spaces (none). Three times as fast as looking for
  // them. False, and nothing read, when they are written otherwise or wrong.
  bool parse_usual_fields(TensorTable::Row& tensor) {
    const std::size_t start = cursor_.offset();
    if (read_usual_fields(tensor)) return true;
    cursor_.back_to(start);
    return false;
  }

  bool read_usual_fields(TensorTable::Row& tensor) {
    if (!cursor_.skip_text("{\"dtype\":\"")) return false;
    if (!read_usual_dtype(tensor.dtype) || !cursor_.skip_text("\",\"shape\":[")) return false;
    shape_.clear();
    if (!cursor_.skip_text("]")) {
      do {
        std::uint64_t dimension;
        if (shape_.size() == max_rank_ || !cursor_.skip_uint(dimension)) return false;
        shape_.push_back(dimension);
      } while (cursor_.skip_text(","));
      if (!cursor_.skip_text("]")) return false;
    }
    return cursor_.skip_text(",\"data_offsets\":[") && cursor_.skip_uint(tensor.begin) && cursor_.skip_text(",") &&
           cursor_.skip_uint(tensor.end) && cursor_.skip_text("]}");
  }

  bool read_usual_dtype(DType& dtype) {
    const std::string_view ahead = cursor_.rest().substr(0, kLongestDType + 1);
    const std::string_view type = ahead.substr(0, ahead.find('"'));
    // Most tensors have the type of the one before. Before the first there is none, which the empty text is not.
    if (type.empty() || type != last_type_) {
      const auto found = dtype_from_name(type);
      if (!found || !in_safetensors(*found)) return false;
      last_type_ = type;
      last_dtype_ = *found;
    }
    dtype = last_dtype_;
    return cursor_.skip_text(type);
  }

  // The fields in any order, among others.
  void parse_fields(TensorTable::Row& tensor) {
    bool has_dtype = false;
    bool has_shape = false;
    bool has_offsets = false;
    cursor_.begin_object();
    std::string_view field;
    while (cursor_.next_key(field, scratch_)) {
      if (field == "dtype") {
        if (std::exchange(has_dtype, true)) cursor_.fail("duplicate field `dtype`");
        tensor.dtype = parse_dtype();
      } else if (field == "shape") {
        if (std::exchange(has_shape, true)) cursor_.fail("duplicate field `shape`");
        parse_shape();
      } else if (field == "data_offsets") {
        if (std::exchange(has_offsets, true)) cursor_.fail("duplicate field `data_offsets`");
        parse_offsets(tensor);
      } else {
        cursor_.skip_value();
      }
    }
    if (!has_dtype) cursor_.fail("missing field `dtype`");
    if (!has_shape) cursor_.fail("missing field `shape`");
    if (!has_offsets) cursor_.fail("missing field `data_offsets`");
  }

  DType parse_dtype() {
    if (cursor_.peek() != '"') cursor_.fail("`dtype` is not a string");
    const std::string_view text = cursor_.read_string(scratch_);
    const auto dtype = dtype_from_name(text);
    if (!dtype || !in_safetensors(*dtype)) cursor_.fail("unknown dtype '" + printable(text) + "'");
    return *dtype;
  }

  void parse_shape() {
    shape_.clear();
    cursor_.begin_array();
    while (cursor_.next_element()) {
      if (shape_.size() == max_rank_) {
        throw Error(ErrorCode::kLimit, "more than " + std::to_string(max_rank_) + " dimensions")
            .at_offset(cursor_.offset());
      }
      shape_.push_back(cursor_.read_uint());
    }
  }

  void parse_offsets(TensorTable::Row& tensor) {
    cursor_.begin_array();
    if (!cursor_.next_element()) cursor_.fail("`data_offsets` needs two integers");
    tensor.begin = cursor_.read_uint();
    if (!cursor_.next_element()) cursor_.fail("`data_offsets` needs two integers");
    tensor.end = cursor_.read_uint();
    if (cursor_.next_element()) cursor_.fail("`data_offsets` has more than two integers");
  }

  void check_size(const TensorTable::Row& tensor) const {
    const auto expected = contiguous_bytes(tensor.dtype, tensor.shape);
    if (!expected) {
      if (is_misaligned(tensor.dtype, tensor.shape)) {
        throw corrupt("its elements of " + std::to_string(bits_of(tensor.dtype)) + " bits do not end on a whole byte",
                      kMisalignedText);
      }
      throw corrupt("its size overflows 64 bits", "overflow computing buffer size from shape and/or element type");
    }
    if (tensor.begin <= tensor.end && tensor.end - tensor.begin != *expected) {
      throw corrupt("shape and dtype need " + bytes_text(*expected) + ", data_offsets give " +
                        std::to_string(tensor.end - tensor.begin),
                    "invalid shape, data type, or offset for tensor");
    }
  }

  HeaderWindow window_;
  JsonCursor cursor_;
  bool metadata_seen_ = false;
  std::uint64_t data_begin_;
  std::uint64_t data_size_;
  std::uint64_t max_rank_;
  TensorTable& table_;
  std::string name_scratch_;
  std::string scratch_;
  Shape shape_;
  std::string last_type_;
  DType last_dtype_ = DType::kU8;
};

void check_coverage(const TensorTable& table, std::uint64_t data_begin, std::uint64_t file_size) {
  std::uint64_t position = data_begin;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.begin(i) != position) {
      const std::string_view name = table.name(i);
      throw Error(ErrorCode::kCorrupt, "begins at data offset " + std::to_string(table.begin(i) - data_begin) +
                                           ", but the one before it ends at " + std::to_string(position - data_begin))
          .in_tensor(name)
          .known_as("invalid offset for tensor `" + printable(name) + "`");
    }
    position += table.nbytes(i);
  }
  if (position != file_size) {
    throw corrupt("the tensors end at byte " + std::to_string(position) + ", but the file at " +
                      std::to_string(file_size) + "; something was appended, or the header is wrong",
                  "incomplete metadata, file not fully covered");
  }
}

}  // namespace

TensorTable read_table(std::shared_ptr<const ByteSource> source, const Limits& limits) try {
  TensorTable table;
  const std::size_t header_size = read_length(*source, limits);
  const std::uint64_t file_size = source->size();
  table.expect_header(header_size);
  try {
    HeaderParser(*source, header_size, limits, table).parse();
  } catch (Error& error) {
    // Offsets in the header's text are given as offsets in the file.
    throw error.shift_offset(kLengthBytes);
  }
  table.add_source(std::move(source));
  table.finish();
  check_coverage(table, kLengthBytes + header_size, file_size);
  return table;
} catch (Error& error) {
  error.of_format(Format::kSafetensors);
  throw;
}

}  // namespace weightstore::safetensors
