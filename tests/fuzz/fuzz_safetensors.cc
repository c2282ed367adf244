// SafeTensors: every table that is read tiles the data section, and writing what was read gives the same table again.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bounds.h"
#include "fuzzing.h"
#include "hex.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"

namespace {

using namespace weightstore;

std::optional<TensorTable> read(ConstBytes file) {
  static Bounds bounds("open", std::string_view("\2\0\0\0\0\0\0\0{}", 10),
                       [](std::string_view smallest) { safetensors::read_table(memory_source(bytes_of(smallest))); });
  try {
    return bounds.run(file.size(), [&] { return safetensors::read_table(memory_source(file)); });
  } catch (const Error& error) {
    require(error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kLimit);
    require(error.format() == Format::kSafetensors);
    require(!error.offset() || *error.offset() <= file.size());
    return std::nullopt;
  }
}

void check_invariants(const TensorTable& table, std::uint64_t file_size) {
  std::uint64_t position = table.size() == 0 ? file_size : table.begin(0);
  for (std::size_t i = 0; i < table.size(); ++i) {
    require(table.begin(i) == position);
    position += table.nbytes(i);
    require(contiguous_bytes(table.dtype(i), table.shape(i)) == table.nbytes(i));
    require(in_safetensors(table.dtype(i)));
    require(table.find(table.name(i)) == i);
    require(table.name(i) != "__metadata__");
  }
  require(position == file_size);
  const auto by_name = table.by_name();
  require(by_name.size() == table.size());
  for (std::size_t k = 1; k < table.size(); ++k) require(table.name(by_name[k - 1]) < table.name(by_name[k]));
}

bool same(const TensorTable& a, const TensorTable& b) {
  if (a.size() != b.size() || a.has_metadata() != b.has_metadata() || a.metadata().size() != b.metadata().size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.metadata().size(); ++i) {
    if (a.metadata().key(i) != b.metadata().key(i) || a.metadata().value(i) != b.metadata().value(i)) return false;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a.name(i) != b.name(i) || a.dtype(i) != b.dtype(i) || a.shape(i) != b.shape(i)) return false;
    if (a.begin(i) - a.begin(0) != b.begin(i) - b.begin(0) || a.nbytes(i) != b.nbytes(i)) return false;
  }
  return true;
}

std::vector<std::byte> write(const TensorTable& table, ConstBytes file) {
  FileContents contents;
  for (std::size_t i = 0; i < table.size(); ++i) {
    contents.add(std::string(table.name(i)), table.dtype(i), table.shape(i),
                 file.subspan(table.begin(i), table.nbytes(i)));
  }
  if (table.has_metadata()) contents.set_metadata(table.metadata());
  static Bounds bounds("plan", "", [](std::string_view) { safetensors::plan(FileContents(), TensorOrder::kAsAdded); });
  const Layout layout = bounds.run(file.size(), [&] { return safetensors::plan(contents, TensorOrder::kAsAdded); });
  std::vector<std::byte> bytes(static_cast<std::size_t>(layout.file_size));
  std::ranges::copy(bytes_of(layout.header), bytes.begin());
  for (const Layout::Placement& placement : layout.placements) {
    std::ranges::copy(contents.tensors()[placement.tensor].bytes->resident().value(),
                      bytes.begin() + static_cast<std::ptrdiff_t>(placement.begin));
  }
  return bytes;
}

void run(ConstBytes file) {
  const std::optional<TensorTable> table = read(file);
  if (!table) return;
  check_invariants(*table, file.size());
  const std::vector<std::byte> written = write(*table, file);
  const std::optional<TensorTable> again = read(written);
  require(again.has_value() && same(*table, *again));
  // A canonical file is a fixed point.
  require(write(*again, written) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
