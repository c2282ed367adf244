// Pagers over files: formats, shards, mappings, direct reads, checksums, and files that change under them.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache_control.h"
#include "check.h"
#include "faulty_file_ops.h"
#include "io/file_source.h"
#include "pager_sources.h"
#include "weightstore/writer.h"

using namespace weightstore;
using namespace pager_sources;
using test_files::as_bytes;

namespace {

constexpr std::size_t kTensors = 5;
constexpr std::size_t sizes[kTensors] = {100, 70'001, 3'000'000, 0, 9'000'000};

void write_model(const std::filesystem::path& path, bool checksums, bool sharded = false) {
  std::vector<std::string> data;
  for (std::size_t i = 0; i < kTensors; ++i) data.push_back(data_of(i, sizes[i]));
  Writer writer;
  for (std::size_t i = 0; i < kTensors; ++i) {
    writer.add("t" + std::to_string(i), DType::kU8, {sizes[i]}, as_bytes(data[i]));
  }
  WriteOptions options;
  options.durable = false;
  options.checksums = checksums;
  if (sharded) {
    writer.write_shards(path, 4'000'000, options);
  } else {
    writer.write_file(path, options);
  }
}

void check_all(Pager& pager) {
  for (int pass = 0; pass < 2; ++pass) {
    for (std::size_t i = 0; i < kTensors; ++i) {
      CHECK(text_of(pager.acquire("t" + std::to_string(i))) == data_of(i, sizes[i]));
    }
  }
}

}  // namespace

TEST(files_and_shards_in_every_way) {
  const test_files::TempDir dir;
  write_model(dir / "m.safetensors", true);
  write_model(dir / "m.bpk", true);
  write_model(dir / "m.safetensors.index.json", true, true);
  for (const char* name : {"m.safetensors", "m.bpk", "m.safetensors.index.json"}) {
    for (const DirectReads direct : {DirectReads::kAuto, DirectReads::kAlways, DirectReads::kNever}) {
      for (const bool zero_copy : {false, true}) {
        for (const bool strict : {false, true}) {
          PagerOptions options = with_budget(10'000'000);
          options.direct = direct;
          options.zero_copy = zero_copy;
          options.strict = strict;
          Pager pager(dir / name, options);
          CHECK_EQ(pager.reads_directly(), direct == DirectReads::kAlways);
          check_all(pager);
        }
      }
    }
  }
}

TEST(bytes_lie_where_numbers_may_lie) {
  const test_files::TempDir dir;
  test_files::write_file(dir / "raw", test_files::pattern(600'000));
  const auto source = io::open_file(dir / "raw", false, io::system_file_ops());
  for (const DirectReads direct : {DirectReads::kAlways, DirectReads::kNever}) {
    for (const std::uint64_t offset : {0, 1, 7, 8, 63, 64, 4095, 4096, 5000}) {
      const std::vector<NamedEntry> one = {{"t", {offset, 500'000}}};
      PagerOptions options;
      options.direct = direct;
      Pager pager(source, one, options);
      const ResidentTensor tensor = pager.acquire("t");
      CHECK_EQ(text_of(tensor), test_files::pattern(600'000).substr(offset, 500'000));
      CHECK_EQ(reinterpret_cast<std::uintptr_t>(tensor.bytes().data()) % 8, 0u);
    }
  }
}

TEST(a_damaged_tensor_is_not_published) {
  const test_files::TempDir dir;
  write_model(dir / "m.bpk", true);
  std::string file = test_files::read_file(dir / "m.bpk");
  file.back() = static_cast<char>(file.back() ^ 1);
  test_files::write_file(dir / "m.bpk", file);
  for (const bool zero_copy : {false, true}) {
    PagerOptions options;
    options.zero_copy = zero_copy;
    Pager pager(dir / "m.bpk", options);
    const std::size_t last = kTensors - 1;
    const Error error = CHECK_THROWS(Error, pager.acquire(last));
    CHECK(error.code() == ErrorCode::kCorrupt);
    CHECK_EQ(error.tensor(), pager.table().name(last));
    CHECK_EQ(pager.resident_bytes(), 0u);
    CHECK_EQ(pager.stats().load_errors, 1u);
    pager.acquire(std::size_t{0});
  }
}

TEST(checksums_are_compared_once) {
  const test_files::TempDir dir;
  write_model(dir / "m.bpk", true);
  Pager pager(dir / "m.bpk", with_budget(0));
  pager.acquire("t4");
  pager.acquire("t2");
  const int fd = ::open((dir / "m.bpk").c_str(), O_RDWR | O_CLOEXEC);
  CHECK_EQ(::pwrite(fd, "x", 1, static_cast<off_t>(pager.table().begin(pager.slot("t4")) + 10)), 1);
  ::close(fd);
  CHECK_EQ(static_cast<char>(pager.acquire("t4").bytes()[10]), 'x');
}

TEST(a_file_cut_short_is_an_error) {
  const test_files::TempDir dir;
  for (const bool map : {false, true}) {
    for (const DirectReads direct : {DirectReads::kNever, DirectReads::kAlways}) {
      test_files::write_file(dir / "raw", contents(2, 100'000));
      PagerOptions options;
      options.direct = direct;
      options.zero_copy = map;
      Pager pager(io::open_file(dir / "raw", map, io::system_file_ops()), entries(2, 100'000), options);
      const ResidentTensor held = pager.acquire("0");
      std::filesystem::resize_file(dir / "raw", 150'000);
      const OffloadEof error = CHECK_THROWS(OffloadEof, pager.acquire("1"));
      CHECK_EQ(*error.offset(), 100'000u);
      CHECK_EQ(error.needed(), 100'000u);
      CHECK_EQ(error.available(), 50'000u);
      CHECK_EQ(error.tensor(), "1");
      CHECK(pager.is_resident(0));
      test_files::write_file(dir / "raw", contents(2, 100'000));
      CHECK(text_of(pager.acquire("1")) == data_of(1, 100'000));
    }
  }
}

TEST(short_and_failing_reads) {
  const test_files::TempDir dir;
  test_files::write_file(dir / "raw", contents(2, 100'000));
  {
    faulty::FaultyFileOps ops({1, faulty::Call::kPread, 0, true});  // every read is short
    Pager pager(io::open_file(dir / "raw", false, ops), entries(2, 100'000));
    CHECK(text_of(pager.acquire("1")) == data_of(1, 100'000));
    CHECK(ops.injected() > 10);
  }
  {
    faulty::FaultyFileOps ops({1, faulty::Call::kPread, EIO, false});
    Pager pager(io::open_file(dir / "raw", false, ops), entries(2, 100'000));
    const Error error = CHECK_THROWS(Error, pager.acquire("1"));
    CHECK_EQ(error.os_errno(), EIO);
    CHECK_EQ(error.tensor(), "1");
    CHECK(text_of(pager.acquire("1")) == data_of(1, 100'000));
  }
}

TEST(evicting_a_mapped_tensor_gives_its_pages_back) {
  const test_files::TempDir dir;
  constexpr std::size_t kSize = 1 << 20;
  test_files::write_file(dir / "raw", contents(2, kSize));
  PagerOptions options = with_budget(kSize);
  options.zero_copy = true;
  Pager pager(io::open_file(dir / "raw", true, io::system_file_ops()), entries(2, kSize), options);
  const auto mapped_pages = [] {  // of files, of this process
    const std::string status = [] {
      std::ifstream file("/proc/self/status");
      return std::string(std::istreambuf_iterator<char>(file), {});
    }();
    const std::size_t at = status.find("RssFile:");
    return at == std::string::npos ? 0 : std::stoull(status.substr(at + 8));
  };
  const ResidentTensor first = pager.acquire("0");
  const ResidentTensor second = pager.acquire("1");
  const auto before = mapped_pages();
  if (before == 0) return;  // a kernel that does not tell
  ResidentTensor released = pager.acquire("0");
  pager.clear();
  CHECK(text_of(first) == data_of(0, kSize));
  {
    const ResidentTensor moved = std::move(const_cast<ResidentTensor&>(second));
    pager.clear();
  }
  const auto after = mapped_pages();
  CHECK(after + 900 < before);  // in KiB; nearly all of the second tensor
}

TEST(memory_is_not_copied_and_not_discarded) {
  const std::string bytes = contents(2, 100'000);
  PagerOptions options = with_budget(100'000);
  options.zero_copy = true;
  Pager pager(memory_source(as_bytes(bytes)), entries(2, 100'000), options);
  CHECK(pager.acquire("1").bytes().data() == as_bytes(bytes).data() + 100'000);
  pager.clear();
  CHECK_EQ(bytes, contents(2, 100'000));
  CHECK(text_of(pager.acquire("0")) == data_of(0, 100'000));
}

RUN_TESTS()
