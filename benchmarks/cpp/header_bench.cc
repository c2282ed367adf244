// Header parse and header write of both formats, per tensor.

#include <span>

#include "benches.h"
#include "weightstore/burnpack.h"
#include "weightstore/safetensors.h"

namespace benches {

using namespace weightstore;

void bench_headers(ankerl::nanobench::Bench& bench, const Model& model) {
  bench.title("headers of 100,000 tensors").unit("tensor").batch(kTensors).epochs(11);

  const std::vector<std::byte> safetensors = model.writer.write_bytes(Format::kSafetensors);
  const std::vector<std::byte> burnpack = model.writer.write_bytes(Format::kBurnpack);
  const auto safetensors_source = memory_source(safetensors);
  const auto burnpack_source = memory_source(burnpack);

  bench.run("SafeTensors parse",
            [&] { ankerl::nanobench::doNotOptimizeAway(safetensors::read_table(safetensors_source).size()); });
  bench.run("Burnpack parse",
            [&] { ankerl::nanobench::doNotOptimizeAway(burnpack::read_table(burnpack_source).size()); });
  bench.run("SafeTensors plan", [&] {
    ankerl::nanobench::doNotOptimizeAway(safetensors::plan(model.writer, TensorOrder::kCanonical).file_size);
  });
  bench.run("Burnpack plan",
            [&] { ankerl::nanobench::doNotOptimizeAway(burnpack::plan(model.writer, BurnRelease::k020).file_size); });
}

}  // namespace benches
