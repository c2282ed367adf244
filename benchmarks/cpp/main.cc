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

// "name" as argument runs only benchmarks whose name contains it.
int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  const auto wanted = [&](const char* name) { return std::string(name).find(only) != std::string::npos; };
  const benches::Model model;
  ankerl::nanobench::Bench bench;
  bench.warmup(1).minEpochIterations(1);
  if (wanted("headers")) benches::bench_headers(bench, model);
  if (wanted("lookup")) benches::bench_lookup(bench, model);
  if (wanted("checksum")) benches::bench_checksum(bench);
  if (wanted("transform")) benches::bench_transform(bench);
  if (wanted("quantized")) benches::bench_quantized();
  if (wanted("pager_hits")) benches::bench_pager_hits(bench);
  if (wanted("pager_misses")) benches::bench_pager_misses(bench);
  if (wanted("pager_small_misses")) benches::bench_pager_small_misses(bench);
  if (wanted("hash_table")) benches::bench_hash_table(bench);
}
