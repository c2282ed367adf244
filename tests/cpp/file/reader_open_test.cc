// What Reader::open() says about files that are none of ours, and about one that only looks so.

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "io/file_ops.h"
#include "shard_models.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

using namespace weightstore;
using test_files::as_text;
using test_files::TempDir;

namespace {

// What is said when a file with these bytes is opened.
Error refusal(std::string_view bytes) {
  const TempDir dir;
  test_files::write_file(dir / "m.safetensors", bytes);
  const Error error = CHECK_THROWS(Error, Reader::open(dir / "m.safetensors"));
  CHECK_EQ(error.path(), (dir / "m.safetensors").string());
  return error;
}

bool says(const Error& error, std::string_view what) { return error.message().find(what) != std::string::npos; }

}  // namespace

TEST(what_is_no_regular_file_is_refused_without_waiting) {
  const TempDir dir;
  CHECK_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  const Error fifo = CHECK_THROWS(Error, Reader::open(dir / "fifo"));
  CHECK(fifo.code() == ErrorCode::kIo && says(fifo, "FIFO"));
  const Error directory = CHECK_THROWS(Error, Reader::open(dir.path()));
  CHECK(directory.code() == ErrorCode::kIo && directory.os_errno() == EISDIR && says(directory, "directory"));
  const Error device = CHECK_THROWS(Error, Reader::open("/dev/zero"));
  CHECK(device.code() == ErrorCode::kIo && says(device, "device"));
  const Error absent = CHECK_THROWS(Error, Reader::open(dir / "absent"));
  CHECK(absent.code() == ErrorCode::kIo && absent.os_errno() == ENOENT);
  CHECK_EQ(absent.path(), (dir / "absent").string());
}

TEST(other_kinds_of_files_are_named) {
  CHECK(says(refusal("version https://git-lfs.github.com/spec/v1\n"), "LFS"));
  CHECK(says(refusal("<!DOCTYPE html>"), "HTML"));
  CHECK(says(refusal(std::string("\x80\x02}q\0.", 6)), "torch.save()"));  // it is named as a SafeTensors file
  CHECK(says(refusal(std::string("PK\3\4\x14\0\0\0\0\0", 10)), "ZIP"));
  CHECK(says(refusal(""), "empty"));
  CHECK(refusal("1234567").code() == ErrorCode::kCorrupt);
  CHECK(refusal(std::string("\x80\x02\0\0\0\0\0\0{\"a\":", 13)).code() == ErrorCode::kCorrupt);
}

TEST(a_safetensors_file_may_begin_like_a_zip) {
  // The header is as long as the letters PK and two control characters say, and nearly all of it is space.
  constexpr std::uint64_t kLength = 0x04034B50;
  const TempDir dir;
  const std::string end = R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  {
    std::ofstream file(dir / "m.safetensors", std::ios::binary);
    file << std::string("PK\3\4\0\0\0\0", 8);
    const std::string space(1 << 20, ' ');
    std::uint64_t left = kLength - end.size();
    for (; left > space.size(); left -= space.size()) file << space;
    file << space.substr(0, left) << end << "abcd";
  }
  const Reader reader = Reader::open(dir / "m.safetensors");
  CHECK_EQ(as_text(reader.view(reader.table().at("t"))->bytes), "abcd");
}

// Two sets whose files have the same names change places while one is opened: whoever opens a shard by its name may get
// the other set's.
TEST(a_set_that_is_replaced_while_it_is_opened_is_not_mixed) {
  constexpr std::size_t kShards = 500;
  const TempDir dir;
  const shard_models::Model models[] = {{kShards, 10, 1}, {kShards, 10, 1000}};
  WriteOptions options;
  options.durable = false;
  std::vector<std::string> shards;
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directory(dir / name);
    shards = models[name[0] - 'a'].writer.write_shards(dir / name / shard_models::kIndex, 10, options);
  }
  for (const std::size_t opened : {std::size_t{0}, kShards / 4, kShards / 2}) {
    const int watch = ::inotify_init1(IN_CLOEXEC);
    CHECK(::inotify_add_watch(watch, (dir / "a" / shards[opened]).c_str(), IN_OPEN) >= 0);
    std::thread replaces([&] {
      alignas(struct inotify_event) std::array<char, 4096> event;
      CHECK(::read(watch, event.data(), event.size()) > 0);
      CHECK_EQ(io::system_file_ops().exchange((dir / "a").c_str(), (dir / "b").c_str()), 0);
    });
    const Reader reader = Reader::open(dir / "a" / shard_models::kIndex);
    replaces.join();
    ::close(watch);
    std::string first(10, '\0');
    reader.read(reader.table().at("t0"), std::as_writable_bytes(std::span(first)));
    models[first == models[0].data[0] ? 0 : 1].check(reader);
  }
}

RUN_TESTS()
