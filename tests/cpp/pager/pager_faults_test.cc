// Every system call of making a pager and of its loads fails once. A load either hands out the right bytes, or throws
// an Error that names the file; afterwards the pager can load the tensor.

#include <string>

#include "cache_control.h"
#include "check.h"
#include "every_fault.h"
#include "io/file_source.h"
#include "pager_sources.h"
#include "weightstore/writer.h"

using namespace weightstore;
using namespace pager_sources;
using faulty::Call;
using faulty::FaultyFileOps;
using faulty::for_every_fault;
using faulty::kShort;
using test_files::TempDir;

namespace {

constexpr std::size_t kTensors = 2;
constexpr std::size_t kSize = 2'500'000;  // in several chunks when reads are direct

void write_model(const std::filesystem::path& path) {
  const std::string bytes = contents(kTensors, kSize);
  Writer writer;
  for (std::size_t i = 0; i < kTensors; ++i) {
    writer.add(std::to_string(i), DType::kU8, {kSize}, test_files::as_bytes(bytes).subspan(i * kSize, kSize));
  }
  WriteOptions options;
  options.durable = false;
  options.checksums = true;
  writer.write_file(path, options);
}

void check_all(Pager& pager) {
  for (std::size_t i = 0; i < kTensors; ++i) CHECK(text_of(pager.acquire(std::to_string(i))) == data_of(i, kSize));
}

}  // namespace

TEST(loads_in_every_way) {
  const TempDir dir;
  const std::filesystem::path path = dir / "m.safetensors";
  write_model(path);
  for (const DirectReads direct : {DirectReads::kAlways, DirectReads::kNever}) {
    for (const bool zero_copy : {false, true}) {
      for (const int error : {EIO, EACCES, ENOENT, EINTR, kShort}) {
        PagerOptions options = with_budget(kSize);
        options.direct = direct;
        options.zero_copy = zero_copy;
        options.readers = 1;
        const std::uint64_t faults = for_every_fault(
            error,
            [&](io::FileOps& ops) {
              const io::FileOpsScope scope(ops);
              Pager pager(path, options);
              try {
                check_all(pager);
              } catch (const Error&) {
                check_all(pager);  // the fault is over
                throw;
              }
            },
            [](bool) {});
        CHECK(faults >= 7);
      }
    }
  }
}

TEST(threads_of_a_pager_read_through_the_file_system_that_it_was_made_with) {
  const TempDir dir;
  write_model(dir / "m.safetensors");
  FaultyFileOps ops;
  const auto pager = [&] {
    const io::FileOpsScope scope(ops);
    PagerOptions options;
    options.direct = DirectReads::kAlways;
    return std::make_unique<Pager>(dir / "m.safetensors", options);
  }();
  const std::uint64_t before = ops.calls();
  pager->prefetch(Slots{0, 1});
  pager->finish_prefetch();
  CHECK(ops.calls() >= before + kTensors);
  check_all(*pager);
}

RUN_TESTS()
