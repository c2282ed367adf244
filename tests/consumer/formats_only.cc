// The formats by themselves, as a target without threads and files would use them: only weightstore::formats is linked.

#include <weightstore/burnpack.h>
#include <weightstore/error.h>
#include <weightstore/kernels.h>
#include <weightstore/safetensors.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "require.h"

namespace ws = weightstore;

int main() {
  const std::string header = R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  std::vector<std::byte> file(8 + header.size() + 2, std::byte{7});
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());

  const ws::TensorTable table = ws::safetensors::read_table(ws::memory_source(file));
  REQUIRE(table.size() == 1);
  const auto view = table.sources()[0]->view(table.begin(0), table.nbytes(0));
  REQUIRE(view && view->bytes.data() == file.data() + 8 + header.size());

  const std::vector<float> numbers = {1.0f, -2.5f};
  std::vector<double> wide(numbers.size());
  ws::kernels::cast(std::as_bytes(std::span(numbers)), ws::DType::kF32, ws::DType::kF64,
                    std::as_writable_bytes(std::span(wide)));
  REQUIRE(wide[0] == 1.0 && wide[1] == -2.5);

  try {
    ws::burnpack::read_table(ws::memory_source(file));
    REQUIRE(!"a SafeTensors file was read as Burnpack");
  } catch (const ws::Error&) {
    std::puts("formats_only: ok");
  }
}
