#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>

#include "check.h"
#include "io/checked_io.h"
#include "io/sinks/file_sink.h"
#include "test_files.h"

using namespace weightstore;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kChunks = 100;
constexpr std::uint64_t kFileSize = kChunks * io::kChunkBytes + 12345;

// A page cache and a device of chosen speeds, by a clock that knows of nothing else. Buffered sinks gather, direct ones
// do not: that tells them apart.
class SlowFileOps final : public io::FileOps {
 public:
  SlowFileOps(std::chrono::milliseconds buffered, std::chrono::milliseconds direct)
      : buffered_delay_(buffered), direct_delay_(direct) {}

  ssize_t pwritev(int fd, const struct iovec* pieces, int count, off_t offset) override {
    ++buffered_calls;
    elapsed_ms_ += buffered_delay_.count();
    return FileOps::pwritev(fd, pieces, count, offset);
  }
  ssize_t pwrite(int fd, const void* data, std::size_t length, off_t offset) override {
    ++direct_calls;
    elapsed_ms_ += direct_delay_.count();
    return FileOps::pwrite(fd, data, length, offset);
  }

  std::chrono::steady_clock::time_point now() override {
    return std::chrono::steady_clock::time_point(std::chrono::milliseconds(elapsed_ms_));
  }

  std::atomic<std::uint64_t> buffered_calls = 0;
  std::atomic<std::uint64_t> direct_calls = 0;

 private:
  const std::chrono::milliseconds buffered_delay_;
  const std::chrono::milliseconds direct_delay_;
  std::atomic<std::int64_t> elapsed_ms_ = 0;
};

// Every eighth byte says where it is.
void stamp(std::string& bytes, std::uint64_t offset) {
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t place = offset + i;
    std::memcpy(bytes.data() + i, &place, 8);
  }
}

void write_all(FileSink& sink) {
  std::string chunk(io::kChunkBytes, '\0');
  for (std::uint64_t done = 0; done < kFileSize; done += chunk.size()) {
    chunk.resize(std::min<std::uint64_t>(io::kChunkBytes, kFileSize - done));
    stamp(chunk, done);
    const ConstBytes bytes = test_files::as_bytes(chunk);
    // Both ways in, and pieces that are no whole chunks.
    const std::size_t produced = chunk.size() / 3;
    const MutableBytes space = sink.space();
    CHECK(space.size() >= produced);
    std::memcpy(space.data(), bytes.data(), produced);
    sink.advance(produced);
    sink.append(bytes.subspan(produced));
    // `chunk` is changed next, and a chunk of the file has ended: nobody may need it any more.
    if (chunk.size() == io::kChunkBytes) CHECK(!sink.holds_memory());
  }
  sink.finish();
}

void check_file(int fd) {
  CHECK_EQ(static_cast<std::uint64_t>(::lseek(fd, 0, SEEK_END)), kFileSize);
  std::string found(io::kChunkBytes, '\0');
  std::string expected;
  for (std::uint64_t done = 0; done < kFileSize; done += found.size()) {
    found.resize(std::min<std::uint64_t>(io::kChunkBytes, kFileSize - done));
    expected.assign(found.size(), '\0');
    stamp(expected, done);
    // stamp() leaves the last few bytes of an odd chunk.
    if (found.size() % 8 != 0) expected.resize(found.size() / 8 * 8);
    CHECK_EQ(::pread(fd, found.data(), found.size(), static_cast<off_t>(done)), static_cast<ssize_t>(found.size()));
    CHECK(found.compare(0, expected.size(), expected) == 0);
  }
}

struct Outcome {
  bool can_be_direct;
  std::uint64_t buffered_calls;
  std::uint64_t direct_calls;
};

Outcome write_with(std::chrono::milliseconds buffered, std::chrono::milliseconds direct) {
  const test_files::TempDir directory;
  const std::string path = (directory.path() / "file").string();
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  CHECK(fd >= 0);
  SlowFileOps ops(buffered, direct);
  const int probe = io::reopen_direct(ops, fd, O_WRONLY);
  io::close_quietly(ops, probe);
  write_all(*io::adaptive_sink({fd, 0, kFileSize, path}, ops));
  check_file(fd);
  ::close(fd);
  return {probe >= 0, ops.buffered_calls, ops.direct_calls};
}

}  // namespace

TEST(a_slow_page_cache_is_left) {
  const Outcome outcome = write_with(20ms, 0ms);
  if (!outcome.can_be_direct) return;  // tmpfs, for one
  CHECK(outcome.direct_calls > kChunks / 2);
  CHECK(outcome.buffered_calls < kChunks / 2);
}

TEST(a_device_that_is_slower_still_is_left_again) {
  const Outcome outcome = write_with(5ms, 60ms);
  if (!outcome.can_be_direct) return;
  CHECK(outcome.direct_calls > 0);
  CHECK(outcome.direct_calls < kChunks / 4);
  CHECK(outcome.buffered_calls > kChunks / 2);
}

TEST(whichever_way_is_taken_the_bytes_are_right) { write_with(0ms, 0ms); }

RUN_TESTS()
