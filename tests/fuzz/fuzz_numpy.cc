// Any bytes: a table that keeps its promises, or an Error. An input that begins with 'h' is the header of an array, and
// one that begins with 'd' is an array's file, which is compressed into an archive.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bounds.h"
#include "formats/numpy/array_header.h"
#include "formats/numpy/reader.h"
#include "fuzzing.h"
#include "hex.h"
#include "numpy_files.h"
#include "weightstore/error.h"
#include "zip_files.h"

using namespace weightstore;

namespace {

using Source = std::shared_ptr<const ByteSource>;

void check_tensor(const TensorTable& table, std::size_t i) {
  const TensorInfo info = table[i];
  require(table.find(info.name) == i);
  const ByteSource& source = *table.sources()[info.source];
  require(info.begin <= info.end && info.end <= source.size());
  require(contiguous_bytes(info.dtype, info.shape) == info.nbytes());
  if (info.nbytes() > 1 << 16) return;
  try {
    std::string whole(static_cast<std::size_t>(info.nbytes()), '\0');
    source.read_at(info.begin, std::as_writable_bytes(std::span(whole)));
    // In two pieces, cut anywhere and read backward, it is the same.
    const std::size_t cut = whole.size() * 2 / 5;
    std::string pieces(whole.size(), '\1');
    source.read_at(info.begin + cut, std::as_writable_bytes(std::span(pieces).subspan(cut)));
    source.read_at(info.begin, std::as_writable_bytes(std::span(pieces).first(cut)));
    require(whole == pieces);
  } catch (const Error& error) {
    require(expected(error));  // compressed data is read now
  }
}

// One of everything: an array that lies ready, one that does not, a compressed one with the longest header.
std::string smallest() {
  const std::string text = numpy_files::header_text("<f4", true, "(1, 1)");
  const std::string longest = numpy_files::with_header(
      text + std::string(static_cast<std::size_t>(numpy::kMaxHeaderBytes) - text.size(), ' '), "abcd", 2);
  return zip_files::archive(
      {{"a.npy", numpy_files::array("<f4", false, "(1,)", "abcd")},
       {"b.npy", numpy_files::array(">f4", true, "(2, 1, 2, 1, 1, 1, 1, 1)", std::string(16, 'x'))},
       zip_files::deflated("c.npy", longest)});
}

void run(const Source& source, Opaque opaque) {
  static Bounds opening("open", smallest(),
                        [](std::string_view file) { numpy::open(memory_source(bytes_of(file)), {}); });
  ReadOptions options;
  options.opaque = opaque;
  try {
    const OpenedFile file =
        opening.run(static_cast<std::size_t>(source->size()), [&] { return numpy::open(source, options); });
    for (std::size_t i = 0; i < std::min<std::size_t>(file.table.size(), 64); ++i) check_tensor(file.table, i);
    if (!file.own_checksums) return;
    const auto checksums = file.own_checksums();
    for (const Checksums::Section& section : checksums->sections(file.table)) {
      if (section.nbytes > 1 << 16) continue;
      try {
        checksums->check_section(file.table, section.number);
      } catch (const Error& error) {
        require(expected(error));
      }
    }
  } catch (const Error& error) {
    require(expected(error) && error.format() == Format::kNumpy);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.starts_with('h')) {
    bytes = numpy_files::with_header(bytes.substr(1, 60'000), std::string(24, 'x'), 1 + static_cast<int>(size % 3));
  } else if (bytes.starts_with('d')) {
    bytes = zip_files::archive({zip_files::deflated("a.npy", std::string_view(bytes).substr(1))});
  }
  const auto source = memory_source(std::as_bytes(std::span(bytes)));
  run(source, Opaque::kError);
  run(source, Opaque::kSkip);
  return 0;
}
