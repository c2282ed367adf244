// What is written, in every mode: the same bytes, in little memory.

#include "io/file_writer.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>

#include "cache_control.h"
#include "check.h"
#include "faulty_file_ops.h"
#include "file_plans.h"
#include "test_files.h"
#include "weightstore/checksum.h"

using namespace weightstore;
using namespace file_plans;
using faulty::Call;
using faulty::FaultyFileOps;
using test_files::as_bytes;
using test_files::pattern;
using test_files::read_file;
using test_files::TempDir;

namespace {

std::size_t resident_set() {
  std::size_t pages = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * 4096;
}

}  // namespace

TEST(all_modes_write_the_same_bytes) {
  const TempDir dir;
  for (const Kind kind : {Kind::kResident, Kind::kDeferred, Kind::kMixed}) {
    for (const std::size_t alignment : {std::size_t{1}, std::size_t{256}, std::size_t{700000}}) {
      const auto plan = make_plan(assorted(), kind, alignment, alignment == 256 ? 5 * kMiB : 0);
      for (const bool sync : {false, true}) {
        save(dir / "f", *plan, durable(sync));
        CHECK(read_file(dir / "f") == plan->expected);
      }
      const auto memory = stream_memory(plan->layout, plan->tensors, {}, nullptr);
      CHECK(test_files::as_text(memory) == plan->expected);
    }
  }
}

TEST(files_of_sizes_around_the_blocks) {
  const TempDir dir;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, 8 * kMiB - 1001, 8 * kMiB - 1000, 8 * kMiB - 999,
                                 12 * kMiB - 1000, 12 * kMiB + 3096, 12 * kMiB + 3097}) {
    const auto plan = make_plan({size}, Kind::kResident);
    for (const bool sync : {false, true}) {
      save(dir / "f", *plan, durable(sync));
      CHECK(read_file(dir / "f") == plan->expected);
    }
  }
}

TEST(tensors_may_lie_anywhere_in_a_page) {
  const TempDir dir;
  const std::string text = bytes_for(0, 10 * kMiB);
  const std::size_t page = 4096 - reinterpret_cast<std::uintptr_t>(text.data()) % 4096;
  for (const std::size_t shift : {0, 1, 31, 32, 4095, 4080, 4065}) {
    const std::string_view part = std::string_view(text).substr(page + shift, 9 * kMiB);
    std::vector<NewTensor> tensors(1);
    tensors[0].bytes = resident_bytes(as_bytes(part));
    for (const bool sync : {false, true}) {
      Plan plan;
      plan.layout = {"", {{0, 0, part.size()}}, part.size()};
      plan.tensors = tensors;
      save(dir / "f", plan, durable(sync));
      CHECK(read_file(dir / "f") == part);
    }
  }
}

TEST(many_small_tensors) {
  const TempDir dir;
  std::mt19937 random(1);
  std::vector<std::size_t> sizes(20000);
  for (std::size_t& size : sizes) size = random() % 2000;
  const auto plan = make_plan(sizes, Kind::kMixed, 8);
  for (const bool sync : {false, true}) {
    save(dir / "f", *plan, durable(sync));
    CHECK(read_file(dir / "f") == plan->expected);
  }
}

TEST(an_empty_layout_is_an_empty_file) {
  const TempDir dir;
  save(dir / "f", {}, durable(true));
  CHECK_EQ(read_file(dir / "f"), "");
}

TEST(checksums_are_those_of_the_tensors) {
  const TempDir dir;
  for (const Kind kind : {Kind::kResident, Kind::kDeferred}) {
    const auto plan = make_plan(assorted(), kind, 64);
    std::vector<std::uint32_t> expected;
    for (const std::string& text : plan->data) expected.push_back(crc32c(as_bytes(text)));
    for (const bool sync : {false, true}) CHECK(save(dir / "f", *plan, durable(sync, true)) == expected);
    std::vector<std::uint32_t> in_memory;
    stream_memory(plan->layout, plan->tensors, {}, &in_memory);
    CHECK(in_memory == expected);
    CHECK(save(dir / "f", *plan, durable(true)).empty());
  }
}

TEST(a_header_can_be_written_again) {
  const TempDir dir;
  for (const bool sync : {false, true}) {
    auto plan = make_plan(assorted(), Kind::kResident);
    io::AtomicFile file(dir / "f", {sync, true}, io::system_file_ops());
    io::stream_file(file, plan->layout, plan->tensors, durable(sync), io::system_file_ops());
    const std::string header = pattern(plan->layout.header.size(), 7);
    io::rewrite_header(file, header, io::system_file_ops());
    file.commit();
    CHECK(read_file(dir / "f") == plan->expected.replace(0, header.size(), header));
  }
}

TEST(large_files_that_will_be_synced_go_around_the_page_cache) {
  const TempDir dir;
  if (!cache_control::has_direct_io(dir.path())) {
    std::printf("skipped: this file system has no direct I/O\n");
    return;
  }
  const auto plan = make_plan({20 * kMiB}, Kind::kResident);
  FaultyFileOps ops;
  save(dir / "f", *plan, durable(true), ops);
  const auto log = ops.log();
  CHECK_EQ(std::count(log.begin(), log.end(), Call::kFtruncate), 1);
}

// The claim is about all memory of the process, so nothing here may hold the tensor: its bytes are made on the way.
TEST(extra_memory_is_a_few_blocks) {
#if defined(__SANITIZE_THREAD__)
  std::printf("skipped: the thread sanitizer multiplies the memory of a process\n");
  return;
#endif
  const TempDir dir;
  const std::uint64_t size = 200 * kMiB;
  for (const bool sync : {false, true}) {
    std::size_t most = 0;
    Plan plan;
    plan.tensors.resize(1);
    plan.tensors[0].name = "t";
    plan.tensors[0].bytes = deferred_bytes(size, [&](std::uint64_t offset, MutableBytes out) {
      std::memset(out.data(), static_cast<int>(offset >> 22), out.size());
      most = std::max(most, resident_set());
    });
    plan.layout = {"", {{0, 0, size}}, size};
    const std::size_t before = resident_set();
    save(dir / "f", plan, durable(sync));
    CHECK(most < before + 40 * kMiB);
    CHECK_EQ(std::filesystem::file_size(dir / "f"), size);
  }
}

RUN_TESTS()
