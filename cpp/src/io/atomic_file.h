#pragma once

// A file that appears under its name only when it is whole.
//
//  1. The target's symlinks are resolved, so that a link stays a link and its target is replaced.
//  2. Temporaries that dead writers left in the directory are removed: a live writer holds a lock on its own.
//  3. A temporary `.<name>.<random>.weightstore-tmp` is created beside the target (O_EXCL) and locked. Its mode is the
//     replaced file's, or what the umask gives.
//  4. The caller writes through fd().
//  5. commit(): fsync, close (checked), rename over the target, fsync of the directory; without `durable` no fsync.
//
// Destroyed without commit(), or when commit() fails before the rename, the temporary is removed and the target is as
// it was. Only a failed fsync of the directory is reported with the new file in place. A failed fsync is never tried
// again: the system may have dropped the data it could not write.

#include <filesystem>
#include <optional>
#include <string>

#include "io/file_ops.h"

namespace weightstore::io {

// Thread-compatible.
class AtomicFile {
 public:
  struct Options {
    bool durable = true;
    bool overwrite = true;  // false: Error(kConflict) when the target exists now, or at commit()
  };

  // Throws Error(kIo) with errno and path when the directory is missing or not writable, or when the target is there
  // and not a regular file.
  AtomicFile(const std::filesystem::path& target, const Options& options, FileOps& ops);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  int fd() const { return fd_; }
  const std::string& temporary_path() const { return temporary_; }
  const std::string& target_path() const { return target_; }  // symlinks resolved

  // Once. After an error there is nothing left to commit.
  void commit();

 private:
  void check_directory() const;
  std::optional<mode_t> mode_of_replaced() const;
  void create_temporary(mode_t mode);
  bool lock_temporary();
  void publish();
  void abandon() noexcept;

  FileOps& ops_;
  Options options_;
  std::string target_;
  std::string directory_;
  std::string temporary_;
  int fd_ = -1;
};

// Where a name that may be a chain of symlinks leads; the file at the end need not exist. Only the last component is
// resolved: links among the directories are the system's business.
std::filesystem::path follow_links(std::filesystem::path path);

// Makes what happened to the names in `directory` survive a power failure. False, and errno, when that failed.
bool sync_directory(const std::string& directory, FileOps& ops);

// Removes temporaries in `directory` whose writers are gone. Never throws: leftovers are an annoyance, not an error.
void remove_stale_temporaries(const std::string& directory, FileOps& ops) noexcept;

// Sixteen hexadecimal digits that nobody else has: names for what shall meet nothing else.
std::string random_digits();

}  // namespace weightstore::io
