#pragma once

// Saves that die, and what they leave.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

#include "check.h"
#include "directory_listing.h"
#include "io/file_ops.h"
#include "saver_files.h"
#include "weightstore/error.h"

namespace saver_crash {

using namespace weightstore;
using namespace saver_files;
using directory_listing::names_in;

// Ends the process, without cleaning up, at the n-th step of this name.
class DyingFileOps final : public io::FileOps {
 public:
  DyingFileOps(std::string step, int at) : step_(std::move(step)), left_(at) {}
  void reached(const char* step) override {
    if (step_ == step && --left_ == 0) ::_exit(42);
  }

 private:
  const std::string step_;
  std::atomic<int> left_;
};

// Options of a save, and the file system that it uses.
struct TestOptions : SaveOptions {
  io::FileOps* file_ops = nullptr;  // null: the operating system

  io::FileOps& ops() const { return file_ops != nullptr ? *file_ops : io::system_file_ops(); }
};

inline TestOptions options_of(CheckpointLayout layout, bool overwrite = false) {
  TestOptions options;
  options.layout = layout;
  options.overwrite = overwrite;
  options.timeout = std::chrono::seconds(20);
  return options;
}

inline void save_one(const std::filesystem::path& path, const TestOptions& options, const std::string& content,
                     std::int64_t shard = 0, std::int64_t shards = 1) {
  const io::FileOpsScope scope(options.ops());
  Saver saver(shard, shards, 2, path);
  saver.configure(options);
  const auto user = table("user", 2, static_cast<std::uint64_t>(shard), static_cast<std::uint64_t>(shards));
  fill(*user, {1, 2, 3, 40000, 50000}, 2);
  saver.save(saver.make_write_blocks(Tables{user}, {dense("w", DType::kU8, {content.size()}, content),
                                                    dense("v", DType::kU8, {content.size()}, content)}));
}

// The exit code of a child that does this.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// What a loader finds: the content of the last complete save, or nothing.
inline std::string loaded(const std::filesystem::path& path) {
  try {
    const CheckpointReader reader(path);
    reader.verify();
    CHECK_EQ(read(reader, "w"), read(reader, "v"));
    return read(reader, "w");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kIo);
    return "";
  }
}

inline bool only_a_checkpoint(const std::filesystem::path& directory) {
  for (const std::string& name : names_in(directory)) {
    if (name.starts_with(".")) return false;
  }
  for (const std::string& name : names_in(directory.parent_path())) {
    if (name.ends_with(".weightstore-save")) return false;
  }
  return true;
}

}  // namespace saver_crash
