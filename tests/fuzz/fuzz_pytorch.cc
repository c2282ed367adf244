// Any bytes: a table that keeps its promises, or an Error. An input that begins with 'p' is a pickle, which is put into
// an archive: mutations of whole files rarely get past the CRC.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "fuzzing.h"
#include "weightstore/error.h"
#include "weightstore/pytorch.h"
#include "zip_files.h"

using namespace weightstore;

namespace {

void check_tensor(const TensorTable& table, std::size_t i) {
  const TensorInfo info = table[i];
  require(table.find(info.name) == i);
  const ByteSource& source = *table.sources()[info.source];
  require(info.begin <= info.end && info.end <= source.size());
  require(contiguous_bytes(info.dtype, info.shape) == info.nbytes());
  if (info.nbytes() > 1 << 16) return;
  std::string whole(static_cast<std::size_t>(info.nbytes()), '\0');
  source.read_at(info.begin, std::as_writable_bytes(std::span(whole)));
  // In two pieces, cut anywhere, it is the same.
  const std::size_t cut = whole.size() * 2 / 5;
  std::string parts(whole.size(), '\1');
  source.read_at(info.begin, std::as_writable_bytes(std::span(parts).first(cut)));
  source.read_at(info.begin + cut, std::as_writable_bytes(std::span(parts).subspan(cut)));
  require(whole == parts);
}

void run(std::shared_ptr<const ByteSource> source, Opaque opaque) {
  try {
    const TensorTable table = pytorch::read_table(source, {}, {opaque});
    for (std::size_t i = 0; i < std::min<std::size_t>(table.size(), 64); ++i) check_tensor(table, i);
    pytorch::read_checksums(*source);
  } catch (const Error& error) {
    require(expected(error) && error.format() == Format::kPytorch);
  }
  try {
    pytorch::read_config(*source, {}, {}, {opaque});
  } catch (const Error& error) {
    require(expected(error));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.starts_with('p')) bytes = zip_files::torch_file(bytes.substr(1));
  if (bytes.starts_with('b')) {  // the same in the other byte order
    bytes = zip_files::archive({{"a/data.pkl", bytes.substr(1)},
                                {"a/byteorder", "big"},
                                {"a/data/0", std::string(16, '\7')},
                                {"a/version", "3"}});
  }
  const auto source = memory_source(std::as_bytes(std::span(bytes)));
  run(source, Opaque::kError);
  run(source, Opaque::kSkip);
  return 0;
}
