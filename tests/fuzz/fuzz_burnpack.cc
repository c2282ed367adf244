// Any bytes: a table that keeps its promises, or an Error. A table's contents are planned and read again to the same.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bounds.h"
#include "formats/burnpack/quant_cbor.h"
#include "fuzzing.h"
#include "hex.h"
#include "weightstore/burnpack.h"
#include "weightstore/error.h"

using namespace weightstore;

namespace {

void check_tensors(const TensorTable& table, std::uint64_t file_size) {
  std::uint64_t last_end = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const TensorInfo info = table[i];
    require(info.begin <= info.end && info.end <= file_size);
    require(info.begin == table.begin(i) && info.nbytes() == table.nbytes(i) && table.source_of(i) == 0);
    require(info.name == table.name(i) && info.dtype == table.dtype(i) && info.shape == table.shape(i));
    require(table.find(info.name) == i && table.at(info.name) == i);
    if (info.nbytes() != 0) {
      require(info.begin >= last_end);
      last_end = info.end;
    }
    require((info.dtype == DType::kQFloat) == (info.quant != nullptr));
    if (info.quant) {
      require(burnpack::payload_fits(*info.quant, info.shape, info.nbytes()) ||
              !burnpack::payload_is_defined(*info.quant, info.shape));
      require(!to_string(*info.quant).empty());
    } else {
      require(contiguous_bytes(info.dtype, info.shape) == info.nbytes());
    }
  }
  require(table.by_name().size() == table.size());
  for (std::size_t i = 1; i < table.size(); ++i) {
    require(table.name(table.by_name()[i - 1]) < table.name(table.by_name()[i]));
  }
}

void check_maps(const TensorTable& table) {
  for (std::size_t i = 0; i < table.metadata().size(); ++i) {
    if (i != 0) require(table.metadata().key(i - 1) < table.metadata().key(i));
    if (i < 64) require(table.metadata().find(table.metadata().key(i)) == table.metadata().value(i));
  }
  for (std::size_t i = 0; i < table.scalars().size(); ++i) {
    if (i != 0) require(table.scalars().name(i - 1) < table.scalars().name(i));
    if (i < 64) require(table.scalars().find(table.scalars().name(i)) == &table.scalars().value(i));
  }
}

FileContents contents_of(const TensorTable& table) {
  FileContents contents;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const TensorInfo info = table[i];
    const SharedBytes view = table.sources()[0]->view(info.begin, info.nbytes()).value();
    contents.add(
        {info.name, info.dtype, info.shape, resident_bytes(view.bytes, view.owner), info.param_id, info.quant});
  }
  if (table.has_metadata()) contents.set_metadata(table.metadata());
  contents.set_scalars(table.scalars());
  return contents;
}

std::string write(const FileContents& contents, BurnRelease release, std::size_t input_size) {
  static Bounds bounds("plan", "", [](std::string_view) { burnpack::plan(FileContents(), BurnRelease::k022); });
  const Layout layout = bounds.run(input_size, [&] { return burnpack::plan(contents, release); });
  std::string file = layout.header;
  file.resize(static_cast<std::size_t>(layout.file_size), '\0');
  for (const Layout::Placement& placement : layout.placements) {
    require(placement.begin % 256 == 0 && placement.begin >= layout.header.size());
    const ConstBytes bytes = contents.tensors()[placement.tensor].bytes->resident().value();
    require(bytes.size() == placement.end - placement.begin);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(file.data()) + placement.begin);
  }
  return file;
}

bool same_scheme(const TensorInfo& a, const TensorInfo& b) {
  if (!a.quant || !b.quant) return a.quant == b.quant;
  return as_release(*a.quant, b.quant->release) == *b.quant;
}

void check_same(const TensorTable& a, const TensorTable& b, BurnRelease release) {
  require(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const TensorInfo one = a[i];
    const TensorInfo other = b[b.at(one.name)];
    const bool narrowed = release == BurnRelease::k020 && one.dtype == DType::kBoolU8;
    require(other.dtype == (narrowed ? DType::kBool : one.dtype));
    require(one.shape == other.shape && one.param_id == other.param_id && one.nbytes() == other.nbytes());
    require(same_scheme(one, other));
    const auto bytes = a.sources()[0]->view(one.begin, one.nbytes())->bytes;
    const auto other_bytes = b.sources()[0]->view(other.begin, other.nbytes())->bytes;
    require(std::equal(bytes.begin(), bytes.end(), other_bytes.begin()));
  }
  require(a.metadata().size() == b.metadata().size() && a.scalars().size() == b.scalars().size());
  for (std::size_t i = 0; i < a.metadata().size(); ++i) {
    require(a.metadata().key(i) == b.metadata().key(i) && a.metadata().value(i) == b.metadata().value(i));
  }
  for (std::size_t i = 0; i < a.scalars().size(); ++i) {
    require(a.scalars().name(i) == b.scalars().name(i));
    require(a.scalars().value(i).index() == b.scalars().value(i).index());
  }
}

TensorTable read(std::string_view file) { return burnpack::read_table(memory_source(bytes_of(file))); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string smallest = burnpack::plan(FileContents(), BurnRelease::k022).header;
  static Bounds bounds("open", smallest, [](std::string_view file) { return read(file); });
  TensorTable table;
  try {
    table = bounds.run(size, [&] { return read({reinterpret_cast<const char*>(data), size}); });
  } catch (const Error& error) {
    require(error.format() == Format::kBurnpack);
    require(error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kLimit ||
            error.code() == ErrorCode::kUnsupported);
    return 0;
  }
  require(!table.dialect().empty());
  check_tensors(table, size);
  check_maps(table);

  const FileContents contents = contents_of(table);
  for (const BurnRelease release : {BurnRelease::k020, BurnRelease::k021, BurnRelease::k022, BurnRelease::k023}) {
    std::string file;
    try {
      file = write(contents, release, size);
    } catch (const Error& error) {
      // A release may lack a type of booleans. It may lack a scheme, give it another length, or read other numbers.
      const bool is_quantized = table[table.at(error.tensor())].quant != nullptr;
      require(is_quantized || (error.code() == ErrorCode::kInvalidArgument && release == BurnRelease::k020));
      continue;
    }
    const TensorTable again = read(file);
    check_same(table, again, release);
    // Metadata that name no release leave open which of those that spell everything alike it was.
    require(write(contents_of(again), again.burn_release().value_or(release), size) == file);
  }
  return 0;
}
