#pragma once

// The C++ benchmarks: one function a file, all run by main.cc.

#include <nanobench.h>

#include <cstddef>
#include <string>
#include <vector>

#include "weightstore/writer.h"

namespace benches {

inline constexpr std::size_t kTensors = 100'000;

// A model of kTensors tensors, each [4, 4] F32, named like the layers of a transformer.
struct Model {
  Model();

  std::vector<std::string> names;
  std::vector<std::byte> values;  // shared by all tensors
  weightstore::Writer writer;
};

void bench_checksum(ankerl::nanobench::Bench& bench);
void bench_hash_table(ankerl::nanobench::Bench& bench);
void bench_headers(ankerl::nanobench::Bench& bench, const Model& model);
void bench_lookup(ankerl::nanobench::Bench& bench, const Model& model);
void bench_pager_hits(ankerl::nanobench::Bench& bench);
void bench_pager_misses(ankerl::nanobench::Bench& bench);
void bench_pager_small_misses(ankerl::nanobench::Bench& bench);
void bench_quantized();
void bench_transform(ankerl::nanobench::Bench& bench);

}  // namespace benches
