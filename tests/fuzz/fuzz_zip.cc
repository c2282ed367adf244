// Any bytes: a directory whose records lie inside the file, one behind the other, or an Error.

#include <cstddef>
#include <cstdint>
#include <string>

#include "bounds.h"
#include "codec/zip_directory.h"
#include "fuzzing.h"
#include "hex.h"
#include "weightstore/error.h"

using namespace weightstore;

namespace {

ZipDirectory open(ConstBytes bytes) { return ZipDirectory::read(*memory_source(bytes), {}); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Bounds bounds("open", std::string_view("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22),
                       [](std::string_view smallest) { open(bytes_of(smallest)); });
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto source = memory_source(bytes);
  try {
    const ZipDirectory directory = bounds.run(size, [&] { return open(bytes); });
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < directory.size(); ++i) {
      const ZipRecord& record = directory[i];
      require(record.begin >= end && record.end() <= size);
      end = record.end();
      require(directory.find(record.name) == i);
      require(record.deflated || record.size == record.stored_size);
      if (record.size > 1 << 20) continue;
      try {
        require(directory.content(*source, i).size() == record.size);
      } catch (const Error& error) {
        require(expected(error));
      }
    }
    require(!directory.find("no/such/record\n"));
  } catch (const Error& error) {
    require(expected(error));
  }
  return 0;
}
