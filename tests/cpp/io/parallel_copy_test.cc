#include "io/parallel_copy.h"

#include <algorithm>
#include <random>
#include <thread>

#include "cache_control.h"
#include "check.h"
#include "faulty_file_ops.h"
#include "io/file_source.h"
#include "io/huge_buffer.h"
#include "io/page_cache.h"
#include "test_files.h"
#include "weightstore/error.h"

using namespace weightstore;
using faulty::Call;
using faulty::Fault;
using faulty::FaultyFileOps;
using test_files::pattern;
using test_files::TempDir;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Not a multiple of the block, the window or the alignment.
constexpr std::size_t kFileSize = 21 * kMiB + 4321;

struct Range {
  std::uint64_t offset;
  std::size_t length;
};

enum class Cache { kWarm, kCold };

// A file with known contents, in the page cache or not.
class Fixture {
 public:
  Fixture() : text(pattern(kFileSize, 1)), path(dir_ / "f") { test_files::write_file(path, text); }

  std::shared_ptr<const ByteSource> open(Cache cache, io::FileOps& ops = io::system_file_ops()) const {
    if (cache == Cache::kCold) cache_control::evict(path);
    return io::open_file(path, false, ops);
  }

 private:
  TempDir dir_;

 public:
  const std::string text;
  const std::filesystem::path path;
};

// Copies all ranges at once and compares each with the file's text.
void check_copies(const Fixture& file, const ByteSource& source, const std::vector<Range>& ranges,
                  const io::CopyOptions& options) {
  std::vector<std::string> outs;
  for (const Range& range : ranges) outs.emplace_back(range.length, '?');
  std::vector<io::CopyRange> requests;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    requests.push_back({&source, ranges[i].offset, std::as_writable_bytes(std::span(outs[i])), "tensor"});
  }
  io::parallel_copy(requests, options, {});
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    CHECK(outs[i] == std::string_view(file.text).substr(ranges[i].offset, ranges[i].length));
  }
}

std::vector<Range> whole_in_pieces(std::size_t piece) {
  std::vector<Range> ranges;
  for (std::size_t at = 0; at < kFileSize; at += piece) ranges.push_back({at, std::min(piece, kFileSize - at)});
  return ranges;
}

bool can_be_cold(const Fixture& file) {
  const auto source = file.open(Cache::kCold);
  return !io::mostly_cached(source->descriptor(), 0, kFileSize, io::system_file_ops());
}

std::size_t count(const std::vector<Call>& log, Call call) {
  return static_cast<std::size_t>(std::count(log.begin(), log.end(), call));
}

}  // namespace

TEST(whole_files_in_pieces_of_all_kinds) {
  const Fixture file;
  for (const Cache cache : {Cache::kWarm, Cache::kCold}) {
    for (const std::size_t piece :
         {std::size_t{997}, std::size_t{65536}, std::size_t{1000001}, std::size_t{4} << 20, kFileSize}) {
      for (const unsigned threads : {0u, 1u, 5u}) {
        check_copies(file, *file.open(cache), whole_in_pieces(piece), {.threads = threads});
      }
    }
  }
}

TEST(outputs_may_lie_anywhere_in_a_page) {
  const Fixture file;
  std::string out(kFileSize + 8192, '?');
  char* page = out.data() + (4096 - reinterpret_cast<std::uintptr_t>(out.data()) % 4096);
  for (const Cache cache : {Cache::kWarm, Cache::kCold}) {
    for (const std::size_t shift : {0, 1, 8, 31, 32, 100, 4095}) {
      std::fill(out.begin(), out.end(), '?');
      const auto source = file.open(cache);
      const MutableBytes bytes = std::as_writable_bytes(std::span(page + shift, kFileSize));
      const std::vector<io::CopyRange> requests{{source.get(), 0, bytes.first(700000), "a"},
                                                {source.get(), 700000, bytes.subspan(700000), "b"}};
      io::parallel_copy(requests, {}, {});
      CHECK(std::string_view(page + shift, kFileSize) == file.text);
    }
  }
}

TEST(scattered_overlapping_unsorted_ranges) {
  const Fixture file;
  std::mt19937 random(2);
  for (const Cache cache : {Cache::kWarm, Cache::kCold}) {
    for (int round = 0; round < 10; ++round) {
      std::vector<Range> ranges;
      for (int i = 0; i < 200; ++i) {
        const std::size_t length = random() % 4 == 0 ? random() % 3000000 : random() % 20000;
        ranges.push_back({random() % (kFileSize - length), length});
      }
      ranges.push_back({kFileSize - 1, 1});
      ranges.push_back({kFileSize, 0});
      ranges.push_back({0, kFileSize});
      check_copies(file, *file.open(cache), ranges, {});
    }
  }
}

TEST(several_files_and_memory_in_one_call) {
  const Fixture a;
  const Fixture b;
  const auto memory = memory_source(std::as_bytes(std::span(a.text)));
  const auto sources = {a.open(Cache::kCold), b.open(Cache::kWarm), memory};
  std::vector<std::string> outs(3 * 20, std::string(1000000, '?'));
  std::vector<io::CopyRange> requests;
  for (std::size_t i = 0; i < 20; ++i) {
    for (const auto& source : sources) {
      requests.push_back(
          {source.get(), i * 1000001, std::as_writable_bytes(std::span(outs[requests.size()])), "tensor"});
    }
  }
  io::parallel_copy(requests, {}, {});
  for (std::size_t i = 0; i < outs.size(); ++i) CHECK(outs[i] == a.text.substr(i / 3 * 1000001, 1000000));
}

TEST(cold_ranges_go_around_the_page_cache) {
  const Fixture file;
  if (!can_be_cold(file)) {
    std::printf("skipped: this file system keeps all files in memory\n");
    return;
  }
  const auto source = file.open(Cache::kCold);
  check_copies(file, *source, {{5, kFileSize - 9}}, {});
  CHECK(!io::mostly_cached(source->descriptor(), 0, kFileSize, io::system_file_ops()));
  check_copies(file, *source, {{5, kFileSize - 9}}, {.direct = DirectIo::kNever});
  CHECK(io::mostly_cached(source->descriptor(), 0, kFileSize, io::system_file_ops()));
}

TEST(direct_reads_that_fail_are_made_up_for) {
  const Fixture file;
  if (!can_be_cold(file)) {
    std::printf("skipped: this file system keeps all files in memory\n");
    return;
  }
  for (const Fault& fault :
       {Fault{1, Call::kOpen, EINVAL, false}, Fault{1, Call::kPread, EINVAL, false}, Fault{2, Call::kPread, EIO, false},
        Fault{1, Call::kPread, EINTR, false}, Fault{1, Call::kPread, 0, true}, Fault{1, {}, EMFILE, true}}) {
    FaultyFileOps ops(fault);
    check_copies(file, *file.open(Cache::kCold), whole_in_pieces(1000001), {.ops = ops});
    CHECK(ops.injected() > 0);
  }
}

TEST(nobody_opens_a_second_descriptor_for_a_warm_file) {
  const Fixture file;
  FaultyFileOps ops;
  check_copies(file, *file.open(Cache::kWarm), {{0, kFileSize}}, {.ops = ops});
  CHECK_EQ(count(ops.log(), Call::kOpen), 0u);
}

TEST(small_neighbours_share_a_read) {
  const Fixture file;
  FaultyFileOps ops;
  const auto source = file.open(Cache::kWarm, ops);
  check_copies(file, *source, whole_in_pieces(1000), {});
  CHECK_EQ(count(ops.log(), Call::kPread), (kFileSize >> 22) + 1);
}

TEST(a_file_that_shrank_is_an_error_that_names_the_tensor) {
  for (const Cache cache : {Cache::kWarm, Cache::kCold}) {
    const Fixture file;
    const auto source = file.open(cache);
    std::filesystem::resize_file(file.path, kFileSize / 2);
    std::string out(kFileSize, '?');
    const io::CopyRange request{source.get(), 0, std::as_writable_bytes(std::span(out)), "tensor"};
    const Error error = CHECK_THROWS(Error, io::parallel_copy({&request, 1}, {}, {}));
    CHECK(error.code() == ErrorCode::kIo);
    CHECK_EQ(error.tensor(), "tensor");
    CHECK_EQ(error.path(), file.path.string());
  }
}

TEST(a_range_outside_the_source_is_refused) {
  const auto source = memory_source({});
  std::byte out;
  const io::CopyRange request{source.get(), 0, {&out, 1}, "tensor"};
  CHECK_EQ(CHECK_THROWS(Error, io::parallel_copy({&request, 1}, {}, {})).tensor(), "tensor");
}

TEST(progress_ends_with_everything_done) {
  const Fixture file;
  for (const std::size_t length : {std::size_t{0}, std::size_t{1000}, kFileSize}) {
    const auto source = file.open(Cache::kWarm);
    std::string out(length, '?');
    const io::CopyRange request{source.get(), 0, std::as_writable_bytes(std::span(out)), "tensor"};
    const auto caller = std::this_thread::get_id();
    std::uint64_t last = 0;
    int ends = 0;
    io::parallel_copy({&request, 1}, {}, [&](std::uint64_t done, std::uint64_t total, std::string_view) {
      CHECK(std::this_thread::get_id() == caller);
      CHECK_EQ(total, length);
      CHECK(done >= last);
      last = done;
      if (done == total) ++ends;
      return true;
    });
    CHECK_EQ(last, length);
    CHECK_EQ(ends, 1);
  }
}

TEST(a_progress_callback_can_cancel) {
  const Fixture file;
  const auto source = file.open(Cache::kWarm);
  std::string out(kFileSize, '?');
  const io::CopyRange request{source.get(), 0, std::as_writable_bytes(std::span(out)), "tensor"};
  const auto stop = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
  CHECK(CHECK_THROWS(Error, io::parallel_copy({&request, 1}, {}, stop)).code() == ErrorCode::kCancelled);
  CHECK(CHECK_THROWS(Error, io::parallel_copy({&request, 1}, {.threads = 1}, stop)).code() == ErrorCode::kCancelled);
}

TEST(fresh_memory_is_filled_like_any_other) {
  const TempDir dir;
  const std::string bytes = pattern(21 * kMiB + 777);
  test_files::write_file(dir / "file", bytes);
  const auto source = io::open_file(dir / "file", false, io::system_file_ops());
  const SharedMutableBytes memory = io::allocate_bulk(bytes.size());
  // Pieces that begin and end in the middle of pages, small and huge.
  std::vector<io::CopyRange> requests;
  for (std::size_t at = 0, size = 1; at < bytes.size(); at += size, size = size * 3 + 1) {
    requests.push_back({source.get(), at, memory.bytes.subspan(at, std::min(size, bytes.size() - at)), "t"});
  }
  io::parallel_copy(requests, {.fresh = {&memory.bytes, 1}}, {});
  CHECK(test_files::as_text(memory.bytes) == bytes);
}

TEST(pages_are_touched_without_harm_to_their_neighbours) {
  const SharedMutableBytes memory = io::allocate_bulk(6 * kMiB);
  std::fill(memory.bytes.begin(), memory.bytes.end(), std::byte{7});
  std::fill_n(memory.bytes.begin() + kMiB, 3 * kMiB, std::byte{0});
  io::FreshPages pages;
  pages.touch(memory.bytes.subspan(kMiB, 3 * kMiB));
  const auto is_seven = [](std::byte byte) { return byte == std::byte{7}; };
  CHECK(std::all_of(memory.bytes.begin(), memory.bytes.begin() + kMiB, is_seven));
  CHECK(std::all_of(memory.bytes.begin() + 4 * kMiB, memory.bytes.end(), is_seven));
}

RUN_TESTS()
