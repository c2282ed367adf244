// What an open file costs per access: finding a name, and the view of a tensor that is in memory.

#include "benches.h"
#include "weightstore/reader.h"

namespace benches {

using namespace weightstore;

void bench_lookup(ankerl::nanobench::Bench& bench, const Model& model) {
  bench.title("access to one of 100,000 tensors").unit("access").batch(1).epochs(11).minEpochIterations(100'000);

  const std::vector<std::byte> file = model.writer.write_bytes(Format::kSafetensors);
  const Reader reader = Reader::from_static(file);

  // A stride that is coprime to the count visits every name, and no cache line twice in a row.
  constexpr std::size_t kStride = 77'773;
  std::size_t i = 0;
  const auto next = [&] { return i = (i + kStride) % kTensors; };

  bench.run("find a name", [&] { ankerl::nanobench::doNotOptimizeAway(reader.table().find(model.names[next()])); });
  bench.run("find a name that is not there",
            [&] { ankerl::nanobench::doNotOptimizeAway(reader.table().find("model.layers.7.block.3.bias")); });
  bench.run("view of a tensor", [&] { ankerl::nanobench::doNotOptimizeAway(reader.view(next())->bytes.data()); });
  bench.minEpochIterations(1);
}

}  // namespace benches
