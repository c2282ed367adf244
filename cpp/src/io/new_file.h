#pragma once

// A file that is written under its final name, for callers whose file names nobody reads before the file is complete.

#include <sys/stat.h>

#include <optional>
#include <string>

#include "io/file_ops.h"
#include "io/output_file.h"

namespace weightstore::io {

// An existing file. A new file gets its owner, mode and attributes.
struct FilePattern {
  std::string path;
  struct stat status;
};

// Used by one thread at a time.
class NewFile : public OutputFile {
 public:
  // Creates the file (O_EXCL) with the attributes of `like` (io/file_attributes.h). Without `like` the umask decides
  // the mode. Throws Error(kIo), also when the name exists.
  NewFile(std::string path, const std::optional<FilePattern>& like, FileOps& ops);
  // Removes the file unless finish() succeeded. A forked child leaves the file to its parent.
  ~NewFile();

  // Syncs the file if `durable`, and closes it. Call this once, and then sync_directory() to make the name durable.
  // Throws Error(kIo).
  void finish(bool durable);

 private:
  void abandon() noexcept;

  FileOps& ops_;
};

}  // namespace weightstore::io
