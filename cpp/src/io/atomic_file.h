#pragma once

// A file that appears under its name only when it is complete.
//
//  1. The constructor resolves symlinks of the target, so that a link stays a link and the file it points to is
//     replaced. It refuses another user's link in a shared directory (io/follow_links.h).
//  2. It removes stale temporaries in the directory (io/temporaries.h).
//  3. It creates a temporary beside the target (O_EXCL) and locks it. The temporary gets the owner, mode and attributes
//     of the file that it will replace (io/file_attributes.h). If there is no such file, the umask decides the mode.
//  4. The caller writes through fd().
//  5. commit() calls fsync, close, rename over the target, and fsync of the directory. Without `durable` it calls no
//     fsync.
//
// If the AtomicFile is destroyed without commit(), or commit() fails before the rename, the temporary is removed and
// the target is unchanged. If only the fsync of the directory fails, commit() throws although the new file is in place;
// is_published() is true then. A failed fsync is never repeated: the kernel may have dropped the data that it could not
// write.
//
// A forked child closes the temporary (io/locks/fork_closed.h), so that it does not keep the lock. In the child, the
// AtomicFile of the parent does nothing.

#include <filesystem>
#include <optional>
#include <string>

#include "io/file_ops.h"
#include "io/output_file.h"
#include "io/temporaries.h"

namespace weightstore::io {

// Used by one thread at a time.
class AtomicFile : public OutputFile {
 public:
  struct Options {
    bool durable = true;
    bool overwrite = true;  // false: Error(kConflict) when the target exists now, or at commit()
  };

  // Throws Error(kIo) with errno and path when the directory is missing or not writable, or when the target exists and
  // is not a regular file.
  AtomicFile(const std::filesystem::path& target, const Options& options, FileOps& ops);
  ~AtomicFile();

  // Call this once. After an error there is nothing left to commit.
  void commit();

  // True once the target's name refers to the new file, even if commit() has thrown.
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

// Makes creations, renames and removals in `directory` durable. On failure it returns false and sets errno.
bool sync_directory(const std::string& directory, FileOps& ops);

// Removes a file, or a symlink but not its target, and syncs the directory if `durable`. A missing file is no error.
// Throws Error(kIo).
void remove_name(const std::string& path, bool durable, FileOps& ops);

}  // namespace weightstore::io
