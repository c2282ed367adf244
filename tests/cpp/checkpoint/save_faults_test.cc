// Every system call of a save fails once: looking at paths, listing and creating directories, as well as writing. The
// checkpoint that was there before stays whole until the new one takes its place, the files of others stay, and the
// next save leaves nothing behind.

#include <sys/stat.h>

#include <string>

#include "check.h"
#include "every_fault.h"
#include "saver_crash.h"

using namespace weightstore;
using namespace saver_crash;
using faulty::Call;
using faulty::FaultyFileOps;
using faulty::for_every_fault;
using faulty::kShort;
using test_files::in_memory;
using test_files::read_file;
using test_files::TempDir;
using test_files::write_file;

namespace {

TestOptions replacing(CheckpointLayout layout) { return options_of(layout, layout == CheckpointLayout::kRecis); }

}  // namespace

TEST(a_save_over_a_checkpoint_fails_at_every_call) {
  for (const CheckpointLayout layout : {CheckpointLayout::kPlain, CheckpointLayout::kRecis}) {
    const TestOptions sound = replacing(layout);
    for (const int error : {EIO, EACCES, EINTR, kShort}) {
      const TempDir dir(in_memory());  // there are thousands of saves
      const std::filesystem::path path = dir / "ckpt";
      save_one(path, sound, "old");
      write_file(path / "extra.pt", "somebody else's");
      std::uint64_t faults = 0;
      bool injected = true;
      for (std::uint64_t n = 1; injected; ++n, ++faults) {
        const std::size_t descriptors = directory_listing::open_descriptors();
        FaultyFileOps ops({.at = n, .kind = {}, .error = error});
        bool succeeded = false;
        try {
          TestOptions options = sound;
          options.file_ops = &ops;
          save_one(path, options, "new");
          succeeded = true;
        } catch (const Error& thrown) {
          CHECK(!thrown.path().empty());
        }
        injected = ops.injected() > 0;
        CHECK_EQ(directory_listing::open_descriptors(), descriptors);
        const std::string found = loaded(path);
        CHECK(found == "new" || (!succeeded && found == "old"));
        CHECK(injected || succeeded);
        save_one(path, sound, "old");
        CHECK_EQ(loaded(path), "old");
        CHECK_EQ(read_file(path / "extra.pt"), "somebody else's");
        CHECK(only_a_checkpoint(path));
      }
      CHECK(faults > 50);
    }
  }
}

TEST(a_first_save_fails_at_every_call) {
  for (const CheckpointLayout layout : {CheckpointLayout::kPlain, CheckpointLayout::kRecis}) {
    for (const int error : {EIO, EACCES, ENOSPC}) {
      const TempDir dir(in_memory());
      const std::filesystem::path path = dir / "run/step/ckpt";
      const std::uint64_t faults = for_every_fault(
          error,
          [&](io::FileOps& ops) {
            TestOptions options = options_of(layout);
            options.file_ops = &ops;
            save_one(path, options, "new");
          },
          [&](bool succeeded) {
            CHECK(!succeeded || loaded(path) == "new");
            const bool nothing = loaded(path).empty();
            save_one(path, nothing ? options_of(layout) : replacing(layout), "newer");
            CHECK_EQ(loaded(path), "newer");
            CHECK(only_a_checkpoint(path));
            std::filesystem::remove_all(dir / "run");
          });
      CHECK(faults > 50);
    }
  }
}

TEST(a_checkpoint_whose_directory_cannot_be_looked_at_is_not_replaced) {
  for (const CheckpointLayout layout : {CheckpointLayout::kPlain, CheckpointLayout::kRecis}) {
    for (const Call kind : {Call::kStat, Call::kOpendir, Call::kReaddir, Call::kRealpath}) {
      const TempDir dir(in_memory());
      save_one(dir / "ckpt", options_of(layout), "old");
      FaultyFileOps ops({.at = 1, .kind = kind, .error = EIO, .onwards = true});
      TestOptions options = replacing(layout);
      options.file_ops = &ops;
      CHECK_EQ(CHECK_THROWS(Error, save_one(dir / "ckpt", options, "new")).os_errno(), EIO);
      CHECK(ops.injected() > 0);
      CHECK_EQ(loaded(dir / "ckpt"), "old");
    }
  }
}

RUN_TESTS()
