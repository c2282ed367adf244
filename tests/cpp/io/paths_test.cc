// What is at a path: found, missing and unknown are three answers.

#include "io/paths.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "check.h"
#include "every_fault.h"
#include "test_files.h"

using namespace weightstore;
using faulty::Call;
using faulty::FaultyFileOps;
using faulty::for_every_fault;
using test_files::TempDir;
using test_files::write_file;
using Paths = std::vector<std::filesystem::path>;

namespace {

io::FileOps& system_ops() { return io::system_file_ops(); }

}  // namespace

TEST(a_link_to_nothing_is_a_name_but_no_file) {
  const TempDir dir;
  write_file(dir / "file", "text");
  std::filesystem::create_symlink("missing", dir / "link");
  CHECK_EQ(io::find_file(dir / "file", system_ops())->st_size, 4);
  CHECK(!io::find_file(dir / "link", system_ops()));
  CHECK(S_ISLNK(io::find_name(dir / "link", system_ops())->st_mode));
  CHECK(io::is_there(dir / "link", system_ops()));
  CHECK(!io::is_there(dir / "missing", system_ops()));
  CHECK(!io::is_there(dir / "file/below", system_ops()));
  CHECK(io::is_directory(dir.path(), system_ops()));
  CHECK(!io::is_directory(dir / "file", system_ops()));
  CHECK(!io::is_directory(dir / "missing", system_ops()));
}

TEST(what_cannot_be_looked_at_is_not_taken_for_missing) {
  const TempDir dir;
  for (const int error : {EIO, EACCES, ESTALE}) {
    FaultyFileOps ops({.at = 1, .kind = Call::kStat, .error = error, .onwards = true});
    CHECK_EQ(CHECK_THROWS(Error, io::is_there(dir / "f", ops)).os_errno(), error);
    CHECK_EQ(CHECK_THROWS(Error, io::is_directory(dir / "f", ops)).path(), (dir / "f").native());
  }
}

TEST(directories_are_listed_whole_or_not_at_all) {
  const TempDir dir;
  std::vector<std::string> expected;
  for (int i = 0; i < 20; ++i) write_file(dir / expected.emplace_back("f" + std::to_string(i)), "");
  std::sort(expected.begin(), expected.end());
  for (const int error : {EIO, EINTR}) {
    const std::uint64_t faults = for_every_fault(
        error,
        [&](io::FileOps& ops) {
          std::vector<std::string> names = io::list_directory(dir.path(), ops);
          std::sort(names.begin(), names.end());
          CHECK(names == expected);
        },
        [](bool) {});
    CHECK(faults > 20);
  }
  CHECK_EQ(CHECK_THROWS(Error, io::list_directory(dir / "missing", system_ops())).os_errno(), ENOENT);
}

TEST(directories_are_created_from_the_outside_in) {
  const TempDir dir;
  CHECK(io::create_directories(dir / "a/b/c", system_ops()) == (Paths{dir / "a", dir / "a/b", dir / "a/b/c"}));
  CHECK(io::create_directories(dir / "a/b/c", system_ops()).empty());
  CHECK(io::create_directories(dir / "a/d/", system_ops()) == Paths{dir / "a/d"});
  CHECK(std::filesystem::is_directory(dir / "a/d"));
  io::create_directories(dir / "x/../y", system_ops());
  CHECK(std::filesystem::is_directory(dir / "y"));
  write_file(dir / "file", "");
  CHECK_EQ(CHECK_THROWS(Error, io::create_directories(dir / "file", system_ops())).os_errno(), ENOTDIR);
  CHECK_EQ(CHECK_THROWS(Error, io::create_directories(dir / "file/below", system_ops())).os_errno(), ENOTDIR);
  std::filesystem::create_symlink("a", dir / "link");
  CHECK(io::create_directories(dir / "link/e", system_ops()) == Paths{dir / "link/e"});
}

TEST(creating_directories_fails_at_every_call) {
  for (const int error : {EIO, EACCES, EINTR}) {
    const TempDir dir;
    const std::uint64_t faults = for_every_fault(
        error, [&](io::FileOps& ops) { io::create_directories(dir / "a/b", ops); },
        [&](bool succeeded) {
          CHECK(!succeeded || std::filesystem::is_directory(dir / "a/b"));
          std::filesystem::remove_all(dir / "a");
        });
    CHECK(faults >= 6);
  }
}

TEST(one_place_has_one_canonical_path) {
  const TempDir dir;
  const std::filesystem::path root = io::canonical_path(dir.path(), system_ops());
  std::filesystem::create_directory(dir / "real");
  std::filesystem::create_symlink("real", dir / "link");
  CHECK_EQ(io::canonical_path(dir / "link/../link/.", system_ops()), root / "real");
  CHECK_EQ(CHECK_THROWS(Error, io::canonical_path(dir / "missing", system_ops())).os_errno(), ENOENT);
  for (const char* spelling : {"real/new/deep", "link/new/deep", "link//new/deep/", "link/./new/../new/deep"}) {
    CHECK_EQ(io::weakly_canonical_path(dir / spelling, system_ops()), root / "real/new/deep");
  }
  CHECK_EQ(io::weakly_canonical_path(dir / "link", system_ops()), root / "real");
  CHECK_EQ(io::weakly_canonical_path("/", system_ops()), "/");

  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  CHECK_EQ(io::weakly_canonical_path("new/deep", system_ops()), root / "new/deep");
  CHECK_EQ(io::weakly_canonical_path(".", system_ops()), root);
  CHECK(io::create_directories("new/deep", system_ops()) == (Paths{"new", "new/deep"}));
  std::filesystem::current_path(before);
}

RUN_TESTS()
