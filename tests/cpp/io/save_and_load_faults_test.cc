// Every system call of a save and of a load fails once: the first, the second, ... until a run needs no more calls than
// that. Whatever fails, the target is the old file or the new one, whole; the next save leaves nothing behind; no
// descriptor is lost; and the error says what happened.

#include <functional>

#include "cache_control.h"
#include "check.h"
#include "directory_listing.h"
#include "every_fault.h"
#include "io/atomic_file.h"
#include "io/file_source.h"
#include "io/file_writer.h"
#include "io/parallel_copy.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

using namespace weightstore;
using directory_listing::names_in;
using directory_listing::open_descriptors;
using faulty::Call;
using faulty::FaultyFileOps;
using faulty::for_every_fault;
using faulty::kShort;
using test_files::as_bytes;
using test_files::pattern;
using test_files::read_file;
using test_files::TempDir;
using test_files::write_file;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// A save that replaces an old file, failing in every way. `save` writes `fresh` to the path.
void check_save(const std::function<void(const std::filesystem::path&, io::FileOps&)>& save, const std::string& fresh) {
  const TempDir dir;
  const std::string old = pattern(3000, 77);
  for (const int error : {EIO, ENOSPC, EINTR, kShort}) {
    const std::uint64_t faults = for_every_fault(
        error,
        [&](io::FileOps& ops) {
          write_file(dir / "f", old);
          save(dir / "f", ops);
        },
        [&](bool succeeded) {
          const std::string now = read_file(dir / "f");
          CHECK(now == fresh || (now == old && !succeeded));
          // Only a temporary that could not be removed may be left, and only until the next save.
          CHECK(names_in(dir.path()).size() <= 2);
          io::remove_stale_temporaries(dir.path(), io::system_file_ops());
          CHECK(names_in(dir.path()) == std::vector<std::string>{"f"});
        });
    CHECK(faults > 5);
  }
}

struct Plan {
  Layout layout;
  std::vector<std::string> data;
  std::vector<NewTensor> tensors;
  std::string expected;
};

// Some resident, some not, some small: `large` makes the file large enough for direct writes.
Plan make_plan(bool large) {
  Plan plan;
  plan.layout.header = pattern(100, 5);
  plan.expected = pattern(100, 6);  // the header that replaces it
  const std::size_t big = large ? 8 * kMiB + 5 : 400 * 1024;
  for (const std::size_t size : {big, std::size_t{0}, std::size_t{1000}, std::size_t{300 * 1024}}) {
    plan.data.push_back(pattern(size, static_cast<std::uint32_t>(plan.data.size())));
  }
  for (std::size_t i = 0; i < plan.data.size(); ++i) {
    NewTensor tensor;
    tensor.name = "t" + std::to_string(i);
    const std::string text = plan.data[i];
    tensor.bytes = deferred_bytes(text.size(), [text](std::uint64_t offset, MutableBytes out) {
      std::copy_n(as_bytes(text).begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    });
    plan.tensors.push_back(tensor);
    plan.layout.placements.push_back({i, plan.expected.size(), plan.expected.size() + text.size()});
    plan.expected += text;
  }
  for (std::size_t i = 0; i < plan.data.size(); i += 3) plan.tensors[i].bytes = resident_bytes(as_bytes(plan.data[i]));
  plan.layout.file_size = plan.expected.size();
  return plan;
}

void check_streamed_save(bool durable, bool large) {
  const Plan plan = make_plan(large);
  const std::string header = plan.expected.substr(0, 100);
  check_save(
      [&](const std::filesystem::path& path, io::FileOps& ops) {
        io::AtomicFile file(path, {durable, true}, ops);
        io::stream_file(file, plan.layout, plan.tensors, {durable, !large, {}}, ops);
        io::rewrite_header(file, header, ops);
        file.commit();
      },
      plan.expected);
}

void check_written_save(const WriteOptions& options, const std::string& name) {
  const std::string data = pattern(300 * 1024, 1);
  Writer writer;
  writer.add("a", DType::kU8, {data.size()}, as_bytes(data));
  writer.add("b", DType::kU8, {10}, as_bytes(data).first(10));
  const Format format = format_of_name(name);
  const auto expected = writer.write_bytes(format, options);
  check_save(
      [&](const std::filesystem::path& path, io::FileOps& ops) {
        const io::FileOpsScope scope(ops);
        writer.write_file(path, format, options);
      },
      test_files::as_text(expected));
}

}  // namespace

TEST(durable_saves_through_the_page_cache) { check_streamed_save(true, false); }
TEST(durable_saves_around_the_page_cache) { check_streamed_save(true, true); }
TEST(saves_without_sync) { check_streamed_save(false, false); }
TEST(large_saves_without_sync) { check_streamed_save(false, true); }

TEST(saves_of_new_files_only) {
  const TempDir dir;
  for (const int error : {EIO, ENOSPC, EINTR}) {
    for_every_fault(
        error,
        [&](io::FileOps& ops) {
          std::filesystem::remove(dir / "f");
          io::AtomicFile file(dir / "f", {true, false}, ops);
          io::rewrite_header(file, "new", ops);
          file.commit();
        },
        [&](bool succeeded) {
          const bool there = std::filesystem::exists(dir / "f");
          CHECK(there || !succeeded);
          if (there) CHECK_EQ(read_file(dir / "f"), "new");
          io::remove_stale_temporaries(dir.path(), io::system_file_ops());
          CHECK(names_in(dir.path()).size() == (there ? 1u : 0u));
        });
  }
}

TEST(safetensors_saves_by_the_writer) {
  for (const bool durable : {true, false}) {
    for (const bool checksums : {true, false}) {
      WriteOptions options;
      options.durable = durable;
      options.checksums = checksums;
      check_written_save(options, "f.safetensors");
    }
  }
}

TEST(burnpack_saves_by_the_writer) { check_written_save({}, "f.bpk"); }

TEST(a_disk_that_stays_broken) {
  const TempDir dir;
  const Plan plan = make_plan(true);
  std::vector<Call> kinds{Call::kPwrite, Call::kFsync, Call::kRename, Call::kFallocate};
  if (cache_control::has_direct_io(dir.path())) kinds.push_back(Call::kFtruncate);
  for (const Call kind : kinds) {
    for (const int error : {EIO, ENOSPC}) {
      write_file(dir / "f", "old");
      FaultyFileOps ops({.at = 1, .kind = kind, .error = error, .onwards = true});
      const std::size_t descriptors = open_descriptors();
      const auto save = [&] {
        io::AtomicFile file(dir / "f", {}, ops);
        io::stream_file(file, plan.layout, plan.tensors, {true, false, {}}, ops);
        file.commit();
      };
      CHECK_EQ(CHECK_THROWS(Error, save()).os_errno(), error);
      CHECK_EQ(open_descriptors(), descriptors);
      CHECK_EQ(read_file(dir / "f"), "old");
      CHECK(names_in(dir.path()) == std::vector<std::string>{"f"});
    }
  }
}

TEST(reads_of_files) {
  const TempDir dir;
  const std::string text = pattern(10 * kMiB + 777, 3);
  write_file(dir / "f", text);
  for (const int error : {EIO, EINTR, kShort}) {
    for (const bool cold : {false, true}) {
      std::string out;
      std::uint64_t faults = for_every_fault(
          error,
          [&](io::FileOps& ops) {
            if (cold) cache_control::evict(dir / "f");
            const auto source = io::open_file(dir / "f", false, ops);
            out.assign(text.size(), '?');
            const MutableBytes bytes = std::as_writable_bytes(std::span(out));
            const std::vector<io::CopyRange> ranges{{source.get(), 0, bytes.first(5000000), "a"},
                                                    {source.get(), 5000000, bytes.subspan(5000000), "b"}};
            io::parallel_copy(ranges, {.ops = ops}, {});
          },
          [&](bool succeeded) { CHECK(!succeeded || out == text); });
      CHECK(faults >= 5);
    }
  }
}

RUN_TESTS()
