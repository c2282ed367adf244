// Every system call of opening, reading and verifying a file or a set of shards fails once. The reader either returns
// the right bytes, or throws an Error that names a file.

#include <string>
#include <vector>

#include "cache_control.h"
#include "check.h"
#include "every_fault.h"
#include "test_files.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

using namespace weightstore;
using faulty::Call;
using faulty::FaultyFileOps;
using faulty::for_every_fault;
using faulty::kShort;
using test_files::as_bytes;
using test_files::pattern;
using test_files::TempDir;

namespace {

constexpr int kErrors[] = {EIO, EACCES, ENOENT, EINTR, kShort};

// A model in every form that a path may lead to.
class Files {
 public:
  // The first tensor has `largest` bytes.
  explicit Files(std::size_t largest) {
    for (const std::size_t size : {largest, std::size_t{100}, std::size_t{0}, std::size_t{7'000}}) {
      data_.push_back(pattern(size, static_cast<std::uint32_t>(size)));
    }
    Writer writer;
    for (std::size_t i = 0; i < data_.size(); ++i) {
      writer.add("t" + std::to_string(i), DType::kU8, {data_[i].size()}, as_bytes(data_[i]));
    }
    WriteOptions options;
    options.durable = false;
    options.checksums = true;
    writer.write_file(dir_ / "one.safetensors", options);
    writer.write_file(dir_ / "one.bpk", options);
    writer.write_shards(dir_ / "set.safetensors.index.json", 1000, options);
  }

  static std::vector<std::string> names() { return {"one.safetensors", "one.bpk", "set.safetensors.index.json"}; }
  std::filesystem::path path(const std::string& name) const { return dir_ / name; }

  // Drops everything from the page cache.
  void make_cold() const {
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) cache_control::evict(entry.path());
  }

  void check_bulk(const Reader& reader) const {
    std::vector<std::string> out;
    for (const std::string& bytes : data_) out.emplace_back(bytes.size(), '?');
    std::vector<Reader::Request> requests;
    for (std::size_t i = 0; i < out.size(); ++i) {
      requests.push_back({tensor(reader, i), std::as_writable_bytes(std::span(out[i]))});
    }
    reader.read_many(requests);
    CHECK(out == data_);
  }

  // The same, and one by one, and, where the reader maps files, through views.
  void check(const Reader& reader) const {
    check_bulk(reader);
    std::vector<std::string> out(data_.size());
    for (std::size_t i = 0; i < data_.size(); ++i) {
      out[i].resize(data_[i].size());
      reader.read(tensor(reader, i), std::as_writable_bytes(std::span(out[i])));
      if (const auto view = reader.view(tensor(reader, i))) CHECK(test_files::as_text(view->bytes) == data_[i]);
    }
    CHECK(out == data_);
    CHECK_EQ(reader.verify_all(), data_.size());
  }

 private:
  static std::size_t tensor(const Reader& reader, std::size_t i) { return reader.table().at("t" + std::to_string(i)); }

  TempDir dir_;
  std::vector<std::string> data_;
};

void check_reads(const ReadOptions& options) {
  const Files files(100'000);
  for (const std::string& name : files.names()) {
    for (const int error : kErrors) {
      const std::uint64_t faults = for_every_fault(
          error,
          [&](io::FileOps& ops) {
            const io::FileOpsScope scope(ops);
            files.check(Reader::open(files.path(name), options));
          },
          [](bool) {});
      CHECK(faults > 10);
    }
  }
}

}  // namespace

TEST(reads_of_mapped_files) { check_reads({}); }

TEST(reads_without_a_mapping) {
  ReadOptions options;
  options.map = false;
  check_reads(options);
}

TEST(opening_with_verification) {
  ReadOptions options;
  options.verify = Verify::kFull;
  check_reads(options);
}

TEST(reads_around_the_page_cache) {
  const Files files(9'000'001);  // smaller requests go through the page cache
  ReadOptions options;
  options.threads = 1;
  for (const int error : kErrors) {
    const std::uint64_t faults = for_every_fault(
        error,
        [&](io::FileOps& ops) {
          files.make_cold();
          const io::FileOpsScope scope(ops);
          files.check_bulk(Reader::open(files.path("one.safetensors"), options));
        },
        [](bool) {});
    CHECK(faults > 10);
  }
}

TEST(a_reader_keeps_the_file_system_that_it_was_opened_with) {
  const Files files(9'000'001);
  FaultyFileOps ops;
  const Reader reader = [&] {
    const io::FileOpsScope scope(ops);
    return Reader::open(files.path("one.safetensors"));
  }();
  files.make_cold();
  const std::uint64_t before = ops.calls();
  files.check(reader);
  CHECK(ops.calls() > before);
  FaultyFileOps unused;
  {
    const io::FileOpsScope scope(unused);
    files.check(reader);
  }
  CHECK_EQ(unused.calls(), 0u);
}

TEST(a_disk_that_cannot_be_read) {
  const Files files(1000);
  for (const std::string& name : files.names()) {
    for (const Call kind : {Call::kOpen, Call::kFstat, Call::kPread, Call::kStat}) {
      FaultyFileOps ops({.at = 1, .kind = kind, .error = EIO, .onwards = true});
      const io::FileOpsScope scope(ops);
      const Error error = CHECK_THROWS(Error, files.check(Reader::open(files.path(name))));
      CHECK_EQ(error.os_errno(), EIO);
      CHECK(!error.path().empty());
    }
  }
}

RUN_TESTS()
