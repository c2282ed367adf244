#pragma once

// A file that appears under its name only when it is whole.
//
//  1. The target's symlinks are resolved, so that a link stays a link and its target is replaced. Another user's link
//     in a shared directory is refused (io/follow_links.h).
//  2. Temporaries that dead writers left in the directory are removed (io/temporaries.h).
//  3. A temporary is created beside the target (O_EXCL) and locked. It gets owner, mode and attributes of the file that
//     it will replace (io/file_attributes.h), or else the mode that the umask gives.
//  4. The caller writes through fd().
//  5. commit(): fsync, close (checked), rename over the target, fsync of the directory; without `durable` no fsync.
//
// If the AtomicFile is destroyed without commit(), or commit() fails before the rename, the temporary is removed and
// the target is as it was. Only when the fsync of the directory fails does commit() throw with the new file in place;
// is_published() tells. A failed fsync is never tried again: the system may have dropped the data it could not write.

#include <filesystem>
#include <optional>
#include <string>

#include "io/file_ops.h"
#include "io/output_file.h"
#include "io/temporaries.h"

namespace weightstore::io {

// Thread-compatible.
class AtomicFile : public OutputFile {
 public:
  struct Options {
    bool durable = true;
    bool overwrite = true;  // false: Error(kConflict) when the target exists now, or at commit()
  };

  // Throws Error(kIo) with errno and path when the directory is missing or not writable, or when the target is there
  // and not a regular file.
  AtomicFile(const std::filesystem::path& target, const Options& options, FileOps& ops);
  ~AtomicFile();

  const std::string& temporary_path() const { return temporary_; }

  // Once. After an error there is nothing left to commit.
  void commit();

  // True once the target's name leads to the new file, even if commit() threw then.
  bool is_published() const { return published_; }

 private:
  void check_directory() const;
  std::optional<struct stat> find_replaced() const;
  void create_temporary(mode_t mode);
  bool lock_temporary();
  void publish();
  void abandon() noexcept;

  FileOps& ops_;
  Options options_;
  std::string directory_;
  std::string temporary_;
  bool published_ = false;
};

// Makes creations, renames and removals in `directory` survive a power failure. Returns false and sets errno on
// failure.
bool sync_directory(const std::string& directory, FileOps& ops);

// Removes what has the name, a symlink rather than its target, and syncs the directory if `durable`. A name that is not
// there is no error. Throws Error(kIo).
void remove_name(const std::string& path, bool durable, FileOps& ops);

}  // namespace weightstore::io
