// Files as sources, mappings, buffers, threads.

#include "io/file_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "check.h"
#include "faulty_file_ops.h"
#include "io/huge_buffer.h"
#include "io/page_cache.h"
#include "io/parallel.h"
#include "test_files.h"
#include "weightstore/error.h"

using namespace weightstore;
using test_files::as_text;
using test_files::pattern;
using test_files::read_file;
using test_files::TempDir;
using test_files::write_file;

namespace {

std::shared_ptr<const ByteSource> open_system(const std::filesystem::path& path, bool map = true) {
  return io::open_file(path, map, io::system_file_ops());
}

std::string read(const ByteSource& source, std::uint64_t offset, std::size_t length) {
  std::string text(length, '?');
  source.read_at(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

Error open_error(const std::filesystem::path& path) { return CHECK_THROWS(Error, open_system(path)); }

bool says(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

}  // namespace

TEST(a_file_is_read_by_position) {
  const TempDir dir;
  write_file(dir / "f", "0123456789");
  const auto source = open_system(dir / "f");
  CHECK_EQ(source->size(), 10u);
  CHECK_EQ(source->name(), (dir / "f").string());
  CHECK(source->descriptor() >= 0);
  CHECK_EQ(read(*source, 3, 4), "3456");
  CHECK_EQ(read(*source, 10, 0), "");
}

TEST(ranges_outside_the_file_are_refused) {
  const TempDir dir;
  write_file(dir / "f", "0123456789");
  const auto source = open_system(dir / "f");
  const Error error = CHECK_THROWS(Error, read(*source, 8, 3));
  CHECK(error.code() == ErrorCode::kIo);
  CHECK_EQ(*error.offset(), 8u);
  CHECK(says(error, "needed 3 bytes, but only 2"));
  CHECK_THROWS(Error, read(*source, ~0ull, 2));
  CHECK_THROWS(Error, source->view(5, 6));
  CHECK_THROWS(Error, source->private_view(~0ull, 2));
}

TEST(an_empty_file_has_empty_views) {
  const TempDir dir;
  write_file(dir / "f", "");
  const auto source = open_system(dir / "f");
  CHECK_EQ(source->size(), 0u);
  CHECK(source->view(0, 0)->bytes.empty());
  CHECK(source->private_view(0, 0)->bytes.empty());
}

TEST(views_outlive_source_and_file) {
  const TempDir dir;
  write_file(dir / "f", "0123456789");
  auto source = open_system(dir / "f");
  auto view = source->view(2, 3);
  auto own = source->private_view(2, 3);
  source.reset();
  std::filesystem::remove(dir / "f");
  CHECK_EQ(as_text(view->bytes), "234");
  const SharedBytes copy = *view;
  view.reset();
  CHECK_EQ(as_text(copy.bytes), "234");
  CHECK_EQ(as_text(own->bytes), "234");
}

TEST(all_views_share_one_mapping) {
  const TempDir dir;
  write_file(dir / "f", "0123456789");
  const auto source = open_system(dir / "f");
  CHECK(source->view(2, 3)->bytes.data() + 4 == source->view(6, 1)->bytes.data());
  CHECK(source->view(2, 3)->owner == source->view(6, 1)->owner);
}

TEST(private_views_change_nothing_but_themselves) {
  const TempDir dir;
  write_file(dir / "f", "0123456789");
  const auto source = open_system(dir / "f");
  const auto own = source->private_view(2, 3);
  own->bytes[0] = std::byte{'x'};
  CHECK_EQ(as_text(source->private_view(0, 10)->bytes), "01x3456789");
  CHECK_EQ(as_text(source->view(0, 10)->bytes), "0123456789");
  CHECK_EQ(read(*source, 0, 10), "0123456789");
  CHECK_EQ(read_file(dir / "f"), "0123456789");
}

TEST(without_mapping_there_are_no_views) {
  const TempDir dir;
  write_file(dir / "f", "0123456789");
  const auto source = open_system(dir / "f", false);
  CHECK(!source->view(0, 10));
  CHECK(!source->private_view(0, 10));
  CHECK_EQ(read(*source, 0, 10), "0123456789");
}

TEST(a_file_that_shrank_is_an_error) {
  const TempDir dir;
  write_file(dir / "f", std::string(10000, 'x'));
  const auto source = open_system(dir / "f", false);
  std::filesystem::resize_file(dir / "f", 5000);
  const Error error = CHECK_THROWS(Error, read(*source, 4000, 2000));
  CHECK(error.code() == ErrorCode::kIo);
  CHECK_EQ(error.path(), (dir / "f").string());
  CHECK_EQ(*error.offset(), 4000u);
  CHECK(says(error, "needed 2000 bytes, but only 1000"));
  CHECK_EQ(read(*source, 4000, 1000), std::string(1000, 'x'));
}

TEST(a_file_that_grew_keeps_its_size) {
  const TempDir dir;
  write_file(dir / "f", "0123");
  const auto source = open_system(dir / "f");
  std::filesystem::resize_file(dir / "f", 10000);
  CHECK_EQ(source->size(), 4u);
  CHECK_THROWS(Error, read(*source, 0, 5));
}

TEST(what_is_not_a_file_is_refused_by_name) {
  const TempDir dir;
  CHECK_EQ(open_error(dir / "absent").os_errno(), ENOENT);
  CHECK_EQ(open_error(dir / "absent").path(), (dir / "absent").string());
  CHECK(says(open_error(dir.path()), "a directory"));
  CHECK_EQ(open_error(dir.path()).os_errno(), EISDIR);
  CHECK_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  CHECK(says(open_error(dir / "fifo"), "a FIFO"));
  CHECK(says(open_error("/dev/zero"), "a character device"));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (dir / "socket").c_str(), sizeof address.sun_path - 1);
  CHECK_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  CHECK(says(open_error(dir / "socket"), "a socket"));
  ::close(fd);
}

TEST(access_denied_is_told_from_absence) {
  faulty::FaultyFileOps ops({.at = 1, .kind = faulty::Call::kOpen, .error = EACCES});
  const TempDir dir;
  write_file(dir / "f", "0123");
  const Error error = CHECK_THROWS(Error, io::open_file(dir / "f", true, ops));
  CHECK(error.code() == ErrorCode::kIo);
  CHECK_EQ(error.os_errno(), EACCES);
}

TEST(symlinks_are_followed) {
  const TempDir dir;
  write_file(dir / "f", "0123");
  std::filesystem::create_symlink("f", dir / "link");
  CHECK_EQ(read(*open_system(dir / "link"), 0, 4), "0123");
}

TEST(many_threads_may_ask_for_the_first_view) {
  const TempDir dir;
  const std::string text = pattern(100000, 1);
  write_file(dir / "f", text);
  const auto source = open_system(dir / "f");
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        const auto view = source->view(i * 1000, 1000);
        const auto own = source->private_view(i * 1000, 1000);
        own->bytes[0] = std::byte{1};
        if (as_text(view->bytes) != text.substr(i * 1000, 1000)) ++wrong;
        if (read(*source, i * 1000, 1000) != text.substr(i * 1000, 1000)) ++wrong;
      });
    }
  }
  CHECK_EQ(wrong.load(), 0);
}

TEST(bulk_memory_is_aligned_and_zero) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{4097}, (std::size_t{2} << 20) - 1, std::size_t{2} << 20,
                                 (std::size_t{5} << 20) + 12345, std::size_t{33} << 20}) {
    const auto memory = io::allocate_bulk(size);
    CHECK_EQ(memory.bytes.size(), size);
    const std::size_t alignment = size >= (2u << 20) ? 2u << 20 : 4096u;
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(memory.bytes.data()) % alignment, 0u);
    for (std::size_t i = 0; i < size; i += i % 4096 == 0 ? 4095 : 1) CHECK(memory.bytes[i] == std::byte{0});
    std::memset(memory.bytes.data(), 1, size);
  }
  CHECK(io::allocate_bulk(0).bytes.empty());
  CHECK_THROWS(std::bad_alloc, io::allocate_bulk(SIZE_MAX));
  CHECK_THROWS(std::bad_alloc, io::allocate_bulk(std::size_t{1} << 60));
}

TEST(bulk_memory_is_given_back) {
  void* address = nullptr;
  {
    const auto memory = io::allocate_bulk(std::size_t{8} << 20);
    address = memory.bytes.data();
    const auto copy = memory.owner;
  }
  unsigned char state;
  CHECK_EQ(::mincore(address, 4096, &state), -1);
  CHECK_EQ(errno, ENOMEM);
}

TEST(cached_pages_are_counted) {
  const TempDir dir;
  write_file(dir / "f", pattern(10 * 4096 + 1, 1));
  const int fd = ::open((dir / "f").c_str(), O_RDONLY);
  const auto by_mincore = io::cached_pages_by_mincore(fd, 0, 10 * 4096 + 1, io::system_file_ops());
  CHECK_EQ(*by_mincore, 11u);
  CHECK_EQ(*io::cached_pages_by_mincore(fd, 4097, 4096, io::system_file_ops()), 2u);
  if (const auto by_cachestat = io::cached_pages_by_cachestat(fd, 0, 10 * 4096 + 1, io::system_file_ops())) {
    CHECK_EQ(*by_cachestat, 11u);
    CHECK_EQ(*io::cached_pages_by_cachestat(fd, 4097, 4096, io::system_file_ops()), 2u);
  }
  CHECK(io::mostly_cached(fd, 0, 10 * 4096 + 1, io::system_file_ops()));
  CHECK(io::mostly_cached(-1, 0, 4096, io::system_file_ops()));  // nobody can tell
  ::close(fd);
}

TEST(every_worker_runs_once) {
  std::atomic<unsigned> seen{0};
  io::run_parallel(5, [&](unsigned worker, const io::StopFlag&) { seen += 1u << (4 * worker); });
  CHECK_EQ(seen.load(), 0x11111u);
}

TEST(the_first_error_stops_the_others_and_is_thrown) {
  std::atomic<int> ended{0};
  const Error error = CHECK_THROWS(Error, io::run_parallel(3, [&](unsigned worker, const io::StopFlag& stop) {
                                     if (worker == 1) throw Error(ErrorCode::kCorrupt, "one");
                                     while (!stop.is_set()) std::this_thread::yield();
                                     ++ended;
                                   }));
  CHECK_EQ(error.message(), "one");
  CHECK_EQ(ended.load(), 2);
}

TEST(watching_happens_on_the_calling_thread_and_can_stop) {
  const auto caller = std::this_thread::get_id();
  bool on_caller = false;
  const Error error = CHECK_THROWS(Error, io::run_parallel(
                                              2,
                                              [&](unsigned, const io::StopFlag& stop) {
                                                while (!stop.is_set()) std::this_thread::yield();
                                              },
                                              [&] {
                                                on_caller = std::this_thread::get_id() == caller;
                                                throw Error(ErrorCode::kCancelled, "enough");
                                              }));
  CHECK(error.code() == ErrorCode::kCancelled);
  CHECK(on_caller);
}

TEST(default_threads_are_few) {
  CHECK(io::default_threads() >= 2);
  CHECK(io::default_threads() <= 8);
}

RUN_TESTS()
