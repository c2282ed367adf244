#define ANKERL_NANOBENCH_IMPLEMENT
#include "benches.h"

namespace benches {

Model::Model() : values(64) {
  names.reserve(kTensors);
  for (std::size_t i = 0; i < kTensors; ++i) {
    names.push_back("model.layers." + std::to_string(i / 8) + ".block." + std::to_string(i % 8) + ".weight");
    writer.add(names.back(), weightstore::DType::kF32, {4, 4}, values);
  }
}

}  // namespace benches

int main() {
  const benches::Model model;
  ankerl::nanobench::Bench bench;
  bench.warmup(1).minEpochIterations(1);
  benches::bench_headers(bench, model);
  benches::bench_lookup(bench, model);
  benches::bench_checksum(bench);
  benches::bench_transform(bench);
  benches::bench_pager(bench);
  benches::bench_hash_table(bench);
}
