// Any bytes: a table and metadata that keep their promises, or an Error. What was read is planned and read again to the
// same.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "bounds.h"
#include "formats/gguf/reader.h"
#include "formats/gguf/writer.h"
#include "fuzzing.h"
#include "hex.h"
#include "weightstore/error.h"
#include "weightstore/kernels.h"
#include "weightstore/typed_metadata.h"

using namespace weightstore;

namespace {

OpenedFile read(std::string_view file) { return gguf::open(memory_source(bytes_of(file)), {}); }

std::string bytes_at(const TensorTable& table, const TensorInfo& info) {
  std::string bytes(static_cast<std::size_t>(info.nbytes()), '\0');
  table.sources()[info.source]->read_at(info.begin, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

void check_tensor(const TensorTable& table, std::size_t i) {
  const TensorInfo info = table[i];
  require(table.find(info.name) == i);
  const ByteSource& source = *table.sources()[info.source];
  require(info.begin <= info.end && info.end <= source.size());
  require(contiguous_bytes(info.dtype, info.shape) == info.nbytes());
  // In two pieces, cut anywhere and read backward, it is the same.
  const std::string whole = bytes_at(table, info);
  const std::size_t cut = whole.size() * 2 / 5;
  std::string pieces(whole.size(), '\1');
  source.read_at(info.begin + cut, std::as_writable_bytes(std::span(pieces).subspan(cut)));
  source.read_at(info.begin, std::as_writable_bytes(std::span(pieces).first(cut)));
  require(whole == pieces);
  if (can_dequantize(info.dtype) && whole.size() <= 4096) {
    const BlockSize block = *block_of(info.dtype);
    std::vector<float> numbers(whole.size() / block.bytes * block.elements);
    kernels::dequantize(bytes_of(whole), info.dtype, DType::kF32, 0, std::as_writable_bytes(std::span(numbers)));
  }
}

// Returns how many values there are, so that visiting them is not optimized away.
std::uint64_t visit(const MetadataView& value) {
  if (!value.is_array()) return value.scalar().index() < 6 ? 1 : 0;
  std::uint64_t count = 0;
  std::uint64_t items = 0;
  value.for_each([&](const MetadataView& item) {
    count += visit(item);
    ++items;
  });
  require(items == value.size());
  return 1 + count;
}

void check_metadata(const TypedMetadata& metadata, std::size_t size) {
  static Bounds bounds("visit", "", [](std::string_view) {});
  bounds.run(size, [&] {
    for (std::size_t i = 0; i < metadata.size(); ++i) require(visit(metadata.value(i)) > 0);
  });
  for (std::size_t i = 0; i < std::min<std::size_t>(metadata.size(), 64); ++i) {
    require(metadata.find(metadata.key(i)) == i);
    require(!metadata.value(i).type_name().empty());
  }
}

void check_disjoint(const TensorTable& table) {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.source_of(i) != 0 || table.nbytes(i) == 0) continue;
    require(table.begin(i) >= end);
    end = table.begin(i) + table.nbytes(i);
  }
}

FileContents contents_of(const TensorTable& table) {
  FileContents contents;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const TensorInfo info = table[i];
    auto bytes = std::make_shared<const std::string>(bytes_at(table, info));
    contents.add({info.name, info.dtype, info.shape, resident_bytes(bytes_of(*bytes), bytes)});
  }
  contents.set_typed_metadata(table.typed_metadata());
  return contents;
}

std::string write(const FileContents& contents, std::size_t input_size) {
  static Bounds bounds("plan", "", [](std::string_view) { gguf::plan(FileContents()); });
  const Layout layout = bounds.run(input_size, [&] { return gguf::plan(contents); });
  require(layout.file_size < (1u << 26));
  std::string file = layout.header;
  file.resize(static_cast<std::size_t>(layout.file_size), '\0');
  for (const Layout::Placement& placement : layout.placements) {
    const ConstBytes bytes = contents.tensors()[placement.tensor].bytes->resident().value();
    require(bytes.size() == placement.end - placement.begin);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(file.data()) + placement.begin);
  }
  return file;
}

void check_same(const TensorTable& a, const TensorTable& b) {
  require(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const TensorInfo one = a[i];
    const TensorInfo other = b[b.at(one.name)];
    require(one.dtype == other.dtype && one.shape == other.shape && bytes_at(a, one) == bytes_at(b, other));
  }
  const TypedMetadata& x = *a.typed_metadata();
  const TypedMetadata& y = *b.typed_metadata();
  require(x.size() == y.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    require(x.key(i) == y.key(i) && x.value(i).type() == y.value(i).type());
    require(x.value(i).encoded() == y.value(i).encoded());
  }
}

// The alignment that the file asks for decides how large a copy of it becomes.
bool is_aligned_widely(const TypedMetadata& metadata) {
  const auto entry = metadata.find("general.alignment");
  return entry && std::get<std::uint64_t>(metadata.value(*entry).scalar()) > 4096;
}

// One of everything, big-endian.
std::string smallest() {
  return unhex(
      "47475546 00000003 0000000000000002 0000000000000002"
      "0000000000000001 61 00000009 00000008 0000000000000001 0000000000000001 78"
      "0000000000000001 62 00000006 3f800000"
      "0000000000000001 77 00000001 0000000000000001 00000000 0000000000000000"
      "0000000000000001 71 00000001 0000000000000020 00000002 0000000000000020"
      "00000000000000000000000000000000000000"
      "3f800000 00000000000000000000000000000000000000000000000000000000"
      "3c00 00112233445566778899aabbccddeeff");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Bounds bounds("open", smallest(), [](std::string_view file) { return read(file); });
  OpenedFile file;
  try {
    file = bounds.run(size, [&] { return read({reinterpret_cast<const char*>(data), size}); });
  } catch (const Error& error) {
    require(expected(error) && error.format() == Format::kGguf);
    return 0;
  }
  const TensorTable& table = file.table;
  check_disjoint(table);
  for (std::size_t i = 0; i < std::min<std::size_t>(table.size(), 16); ++i) check_tensor(table, i);
  check_metadata(*table.typed_metadata(), size);
  if (is_aligned_widely(*table.typed_metadata())) return 0;
  const FileContents contents = contents_of(table);
  std::string again;
  try {
    again = write(contents, size);
  } catch (const Error& error) {
    // Names and dimensions that ggml would refuse.
    require(error.code() == ErrorCode::kInvalidArgument);
    return 0;
  }
  const OpenedFile copy = read(again);
  check_same(table, copy.table);
  return 0;
}
