#include "benches.h"
#include "weightstore/checksum.h"

namespace benches {

void bench_checksum(ankerl::nanobench::Bench& bench) {
  bench.title("crc32c").unit("byte").epochs(11);
  for (const std::size_t size : {std::size_t{64}, std::size_t{4096}, std::size_t{16} << 20}) {
    const std::vector<std::byte> bytes(size, std::byte{0x5a});
    bench.batch(size).run(std::to_string(size) + " bytes",
                          [&] { ankerl::nanobench::doNotOptimizeAway(weightstore::crc32c(bytes)); });
  }
}

}  // namespace benches
