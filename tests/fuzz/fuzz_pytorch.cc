// Any bytes: a table that keeps its promises, or an Error. An input that begins with 'p' is a pickle, which is put into
// an archive: mutations of whole files rarely get past the CRC.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "bounds.h"
#include "codec/memory_budget.h"
#include "codec/pickle_vm.h"
#include "fuzzing.h"
#include "hex.h"
#include "weightstore/error.h"
#include "weightstore/pytorch.h"
#include "zip_files.h"

using namespace std::literals;
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

// A dict with one tensor, which leaves as much of the memo empty as a pickle may; `more` ends its persistent id.
std::string smallest_pickle(const char* more) {
  return "\x80\2}q\0r\xFF\3\0\0r\0\4\0\0"s +
         "U\1actorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\1"
         "0U\3cpuK\4"s +
         more +
         "tQK\0K\4\x85K\1\x85\x89"
         "ccollections\nOrderedDict\n)RtRs."s;
}

std::string smallest_stream() {
  return "\x80\2\x8A\nl\xFC\x9C"
         "F\xF9 j\xA8P\x19."
         "\x80\2M\xE9\3."
         "\x80\2}(U\x10protocol_versionM\xE9\3U\rlittle_endian\x88U\ntype_sizes}(U\5shortK\2U\3intK\4U\4longK\4uu."s +
         smallest_pickle("N") +
         "\x80\2]U\1"
         "0a."
         "\4\0\0\0\0\0\0\0"s +
         std::string(16, '\0');
}

template <class Operation>
Bounds bounds_of(const char* name, Operation operation) {
  // The last is nested as deep as the limit.
  const std::string files[] = {zip_files::torch_file(smallest_pickle("")), smallest_stream(),
                               zip_files::torch_file("\x80\2N" + std::string(PickleLimits().depth - 1, '\x85') + ".")};
  return Bounds(name, "", [&](std::string_view) {
    for (const std::string& file : files) operation(memory_source(bytes_of(file)));
  });
}

// Without the memory that is granted to small files which repeat themselves: the bound must hold for each byte.
Limits tight() {
  Limits limits;
  limits.pytorch_memory_bytes = MemoryBudget::kConstant;
  return limits;
}

// Whether the file has what kError refuses and kSkip passes over, perhaps.
bool run(std::shared_ptr<const ByteSource> source, Opaque opaque) {
  using Source = std::shared_ptr<const ByteSource>;
  static Bounds opening = bounds_of("open", [](Source file) { pytorch::read_table(file, tight()); });
  static Bounds checksums = bounds_of("read_checksums", [](Source file) { pytorch::read_checksums(*file); });
  static Bounds config = bounds_of("read_config", [](Source file) { pytorch::read_config(*file, {}, tight()); });
  const auto size = static_cast<std::size_t>(source->size());
  bool unsupported = false;
  try {
    const TensorTable table = opening.run(size, [&] { return pytorch::read_table(source, tight(), {opaque}); });
    for (std::size_t i = 0; i < std::min<std::size_t>(table.size(), 64); ++i) check_tensor(table, i);
    require(opaque == Opaque::kSkip || table.left_out().empty());
    require(table.left_out().empty() || table.size() > 0);
    checksums.run(size, [&] { return pytorch::read_checksums(*source); });
  } catch (const Error& error) {
    require(expected(error) && error.format() == Format::kPytorch);
    unsupported |= error.code() == ErrorCode::kUnsupported;
  }
  try {
    config.run(size, [&] { return pytorch::read_config(*source, {}, tight(), {opaque}); });
  } catch (const Error& error) {
    require(expected(error));
    unsupported |= error.code() == ErrorCode::kUnsupported;
  }
  return unsupported;
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
  if (run(source, Opaque::kError)) run(source, Opaque::kSkip);
  return 0;
}
