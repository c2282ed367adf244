#pragma once

// A file that is written under its final name, for callers whose names nobody looks at before the file is whole.

#include <sys/stat.h>

#include <optional>
#include <string>

#include "io/file_ops.h"
#include "io/output_file.h"

namespace weightstore::io {

// An existing file whose owner, mode and attributes a new one shall have.
struct FilePattern {
  std::string path;
  struct stat status;
};

// Thread-compatible.
class NewFile : public OutputFile {
 public:
  // Creates the file (O_EXCL), with the attributes of `like` (io/file_attributes.h) or the mode that the umask gives.
  // Throws Error(kIo), also when the name is taken.
  NewFile(std::string path, const std::optional<FilePattern>& like, FileOps& ops);
  // Removes the file unless finish() succeeded.
  ~NewFile();

  // Syncs the file if `durable`, and closes it. Once. Throws Error(kIo). The file's name still has to be synced:
  // sync_directory().
  void finish(bool durable);

 private:
  void abandon() noexcept;

  FileOps& ops_;
};

}  // namespace weightstore::io
