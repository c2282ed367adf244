// The formats by themselves, as a target without threads and files would use them: only weightstore::formats is linked.

#include <weightstore/burnpack.h>
#include <weightstore/error.h>
#include <weightstore/file_bytes.h>
#include <weightstore/kernels.h>
#include <weightstore/safetensors.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "require.h"

namespace ws = weightstore;

static ws::ConstBytes bytes_of(const ws::TensorTable& table, std::string_view name) {
  const std::size_t tensor = table.at(name);
  const auto view = table.sources()[0]->view(table.begin(tensor), table.nbytes(tensor));
  REQUIRE(view);
  return view->bytes;
}

static void reads_a_file() {
  const std::string header = R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  std::vector<std::byte> file(8 + header.size() + 2, std::byte{7});
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());

  const ws::TensorTable table = ws::safetensors::read_table(ws::memory_source(file));
  REQUIRE(table.size() == 1);
  REQUIRE(bytes_of(table, "x").data() == file.data() + 8 + header.size());

  // The same file, written: the header is padded to a multiple of 8 bytes.
  ws::FileContents contents;
  const std::vector<std::byte> x(2, std::byte{7});
  contents.add("x", ws::DType::kU8, {2}, x);
  const std::vector<std::byte> written =
      ws::file_bytes(contents, ws::safetensors::plan(contents, ws::TensorOrder::kCanonical));
  REQUIRE(written.size() == 8 + 56 + 2 && header.size() <= 56);
  REQUIRE(std::equal(header.begin(), header.end(), reinterpret_cast<const char*>(written.data()) + 8));
  REQUIRE(ws::safetensors::read_table(ws::memory_source(written)).size() == 1);

  try {
    ws::burnpack::read_table(ws::memory_source(file));
    REQUIRE(!"a SafeTensors file was read as Burnpack");
  } catch (const ws::Error&) {
  }
}

static ws::FileContents model(const std::vector<float>& weight) {
  ws::FileContents contents;
  contents.add("linear.weight", ws::DType::kF32, {2, 3}, std::as_bytes(std::span(weight)));
  // Made while the file is written.
  contents.add({.name = "steps",
                .dtype = ws::DType::kU8,
                .shape = {5},
                .bytes = ws::deferred_bytes(5, [](std::uint64_t offset, ws::MutableBytes out) {
                  for (std::byte& byte : out) byte = static_cast<std::byte>(offset++);
                })});
  contents.set_metadata("made_by", "formats_only");
  return contents;
}

static void reads_back(const ws::TensorTable& table, const std::vector<float>& weight) {
  REQUIRE(table.size() == 2);
  REQUIRE(table.metadata().find("made_by") == "formats_only");
  const ws::TensorInfo info = table[table.at("linear.weight")];
  REQUIRE(info.dtype == ws::DType::kF32);
  REQUIRE((info.shape == ws::Shape{2, 3}));
  REQUIRE(std::ranges::equal(bytes_of(table, "linear.weight"), std::as_bytes(std::span(weight))));
  const ws::ConstBytes steps = bytes_of(table, "steps");
  for (std::size_t i = 0; i < 5; ++i) REQUIRE(steps[i] == static_cast<std::byte>(i));
}

static void writes_and_reads_back() {
  const std::vector<float> weight = {1.0f, -2.5f, 3.0f, 4.0f, 5.5f, -6.0f};
  ws::FileContents contents = model(weight);

  const auto safetensors = ws::file_bytes(contents, ws::safetensors::plan(contents, ws::TensorOrder::kCanonical));
  reads_back(ws::safetensors::read_table(ws::memory_source(safetensors)), weight);

  contents.set_scalar("epoch", std::uint64_t{3});
  const auto burnpack = ws::file_bytes(contents, ws::burnpack::plan(contents, ws::kNewestStableBurn));
  const ws::TensorTable table = ws::burnpack::read_table(ws::memory_source(burnpack));
  reads_back(table, weight);
  REQUIRE(table.scalars().size() == 1 && table.scalars().name(0) == "epoch");

  // SafeTensors has no scalars, and the contents are refused before a byte is written.
  try {
    ws::safetensors::plan(contents, ws::TensorOrder::kCanonical);
    REQUIRE(!"scalars were planned into a SafeTensors file");
  } catch (const ws::Error&) {
  }
}

static void casts() {
  const std::vector<float> numbers = {1.0f, -2.5f};
  std::vector<double> wide(numbers.size());
  ws::kernels::cast(std::as_bytes(std::span(numbers)), ws::DType::kF32, ws::DType::kF64,
                    std::as_writable_bytes(std::span(wide)));
  REQUIRE(wide[0] == 1.0 && wide[1] == -2.5);
}

int main() {
  reads_a_file();
  writes_and_reads_back();
  casts();
  std::puts("formats_only: ok");
}
