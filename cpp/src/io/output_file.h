#pragma once

// A file that is being written, as the code that fills it sees it.

#include <sys/types.h>
#include <unistd.h>

#include <string>

namespace weightstore::io {

class OutputFile {
 public:
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  int fd() const { return fd_; }
  const std::string& target_path() const { return target_; }  // the path of the whole file, symlinks resolved

 protected:
  OutputFile() = default;
  ~OutputFile() = default;

  // True in a forked child of the process that made the object. The file belongs to the parent: the child must leave it
  // alone.
  bool is_parents() const { return ::getpid() != process_; }

  std::string target_;
  int fd_ = -1;

 private:
  const pid_t process_ = ::getpid();
};

}  // namespace weightstore::io
