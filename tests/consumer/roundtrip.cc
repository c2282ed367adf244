// roundtrip DIRECTORY: writes a model in both formats there, and reads both back.

#include <weightstore/weightstore.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <numeric>
#include <span>
#include <vector>

#include "require.h"

namespace ws = weightstore;

int main(int argc, char** argv) {
  REQUIRE(argc == 2);
  const std::filesystem::path directory = argv[1];

  std::vector<float> weight(1024 * 1024);
  std::iota(weight.begin(), weight.end(), 0.0f);
  const std::vector<std::int64_t> steps = {1, 2, 3};

  ws::Writer writer;
  writer.add("linear.weight", ws::DType::kF32, {1024, 1024}, std::as_bytes(std::span(weight)));
  writer.add("steps", ws::DType::kI64, {3}, std::as_bytes(std::span(steps)));
  writer.set_metadata("made_by", "consumer");

  for (const char* name : {"model.safetensors", "model.bpk"}) {
    writer.write_file(directory / name);
    const ws::Reader reader = ws::Reader::open(directory / name);
    const ws::TensorTable& table = reader.table();
    REQUIRE(reader.format() == ws::format_of_name(name));
    REQUIRE(table.size() == 2);
    REQUIRE(table.metadata().find("made_by") == "consumer");

    const ws::TensorInfo info = table[table.at("linear.weight")];
    REQUIRE(info.dtype == ws::DType::kF32);
    REQUIRE((info.shape == ws::Shape{1024, 1024}));
    std::vector<float> read(weight.size());
    reader.read(table.at("linear.weight"), std::as_writable_bytes(std::span(read)));
    REQUIRE(read == weight);

    const auto view = reader.view(table.at("steps"));
    REQUIRE(view.has_value());
    REQUIRE(std::ranges::equal(view->bytes, std::as_bytes(std::span(steps))));
    REQUIRE(!table.find("absent"));
  }

  ws::NameHooks hooks;
  hooks.keep = [](const ws::TensorInfo& tensor) { return tensor.dtype == ws::DType::kF32; };
  hooks.rename = [](std::string_view name) { return "model." + std::string(name); };
  ws::convert_file(ws::Reader::open(directory / "model.bpk").renamed(hooks), directory / "renamed.safetensors");
  const ws::Reader renamed = ws::Reader::open(directory / "renamed.safetensors");
  REQUIRE(renamed.table().size() == 1);
  const ws::ConstBytes stored = renamed.view(renamed.table().at("model.linear.weight"))->bytes;
  std::vector<float> turned(weight.size());
  ws::transpose(stored, sizeof(float), 1024, 1024, std::as_writable_bytes(std::span(turned)));
  REQUIRE(turned[1] == weight[1024]);
  std::vector<double> wide(weight.size());
  ws::cast(stored, ws::DType::kF32, ws::DType::kF64, std::as_writable_bytes(std::span(wide)));
  REQUIRE(wide[1025] == 1025.0);

  try {
    ws::Reader::open(directory / "absent.bpk");
    REQUIRE(!"a file that is not there was opened");
  } catch (const ws::Error& error) {
    REQUIRE(error.code() == ws::ErrorCode::kIo);
    REQUIRE(error.os_errno() == ENOENT);
  }
  std::puts("roundtrip: ok");
}
