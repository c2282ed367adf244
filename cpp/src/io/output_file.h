#pragma once

// What a file that is being written is to those who fill it.

#include <string>

namespace weightstore::io {

class OutputFile {
 public:
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  int fd() const { return fd_; }
  const std::string& target_path() const { return target_; }  // the path that the whole file has, symlinks resolved

 protected:
  OutputFile() = default;
  ~OutputFile() = default;

  std::string target_;
  int fd_ = -1;
};

}  // namespace weightstore::io
