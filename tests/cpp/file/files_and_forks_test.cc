// A process that forks while it writes files: the child neither keeps the locks of the files nor removes them.

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "child_process.h"
#include "directory_listing.h"
#include "file/shard_journal.h"
#include "io/atomic_file.h"
#include "io/new_file.h"
#include "io/temporaries.h"
#include "long_lived_children.h"
#include "test_files.h"
#include "weightstore/error.h"

using namespace weightstore;
using child_process::run_and_exit;
using child_process::succeeded;
using directory_listing::names_in;
using long_lived_children::LongLived;
using test_files::TempDir;

namespace {

// A process that does `work`, makes a child that lives on, and dies without cleaning up.
template <class Work>
void die_with_a_child(const LongLived& children, const Work& work) {
  const pid_t process = ::fork();
  if (process == 0) {
    run_and_exit([&] {
      const auto held = work();
      children.make_child();
      ::_exit(0);
      return true;
    });
  }
  CHECK(succeeded(process));
}

}  // namespace

TEST(a_child_does_not_keep_the_temporary_of_a_writer_that_died) {
  const TempDir dir;
  const LongLived children;
  io::FileOps& ops = io::system_file_ops();
  die_with_a_child(children,
                   [&] { return std::make_unique<io::AtomicFile>(dir / "a", io::AtomicFile::Options(), ops); });
  CHECK_EQ(names_in(dir.path()).size(), std::size_t{1});
  io::remove_stale_temporaries(dir.path().native(), ops);
  CHECK(names_in(dir.path()).empty());
}

TEST(a_child_does_not_keep_the_journal_of_a_save_that_died) {
  const TempDir dir;
  const LongLived children;
  const ShardSite site = site_of_index(dir / "model.safetensors.index.json");
  die_with_a_child(children, [&] {
    auto journal = std::make_unique<ShardJournal>(site, io::system_file_ops());
    journal->flush(false);
    return journal;
  });
  CHECK_EQ(names_in(dir.path()).size(), std::size_t{1});
  settle_journals(site, "", io::system_file_ops());
  CHECK(names_in(dir.path()).empty());
}

TEST(a_child_that_destroys_the_files_of_its_parent_leaves_them_alone) {
  const TempDir dir;
  io::FileOps& ops = io::system_file_ops();
  const ShardSite site = site_of_index(dir / "model.safetensors.index.json");
  std::optional<io::AtomicFile> atomic(std::in_place, dir / "a", io::AtomicFile::Options(), ops);
  std::optional<io::NewFile> made(std::in_place, (dir / "b").native(), std::nullopt, ops);
  std::optional<ShardJournal> journal(std::in_place, site, ops);
  const auto names = names_in(dir.path());
  CHECK_EQ(names.size(), std::size_t{3});
  const pid_t child = ::fork();
  if (child == 0) {
    run_and_exit([&] {
      const auto refused = CHECK_THROWS(Error, atomic->commit());
      atomic.reset();
      made.reset();
      journal->remove();
      journal.reset();
      return refused.code() == ErrorCode::kInvalidArgument;
    });
  }
  CHECK(succeeded(child));
  CHECK(names_in(dir.path()) == names);
  atomic->commit();
  made->finish(false);
  journal->remove();
  CHECK(names_in(dir.path()) == (std::vector<std::string>{"a", "b"}));
}

RUN_TESTS()
