#pragma once

// A file into which boxes are written: through the page cache, or around it.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "io/file_ops.h"
#include "weightstore/byte_source.h"

namespace weightstore {

// One open file, for all threads.
class BoxFile {
 public:
  // Throws Error(kIo). `direct`: write_direct() goes around the page cache where the file system can.
  BoxFile(const std::filesystem::path& path, bool direct, io::FileOps& ops);
  ~BoxFile();
  BoxFile(const BoxFile&) = delete;
  BoxFile& operator=(const BoxFile&) = delete;

  const std::string& path() const { return path_; }
  bool is_direct() const { return direct_ >= 0 && !refused_.load(std::memory_order_relaxed); }

  void write(std::uint64_t offset, ConstBytes bytes);
  // `bytes` lie in their page of memory as they do in their block of the file. The two ends that are no whole blocks go
  // through the page cache.
  void write_direct(std::uint64_t offset, ConstBytes bytes);

 private:
  io::FileOps& ops_;
  const std::string path_;
  int fd_ = -1;
  int direct_ = -1;
  std::atomic<bool> refused_{false};
};

// Files that are opened when a thread first writes to them, a few at once. Thread-safe.
class BoxFiles {
 public:
  BoxFiles(std::span<const std::filesystem::path> paths, bool direct, io::FileOps& ops)
      : paths_(paths), direct_(direct), ops_(ops) {}

  std::shared_ptr<BoxFile> open(std::size_t number);

 private:
  const std::span<const std::filesystem::path> paths_;
  const bool direct_;
  io::FileOps& ops_;
  std::mutex mutex_;
  std::map<std::size_t, std::shared_ptr<BoxFile>> files_;  // by number: tensors are written in this order, mostly
};

// Syncs files that were written, whoever wrote them. Throws Error(kIo).
void sync_files(std::span<const std::filesystem::path> paths, io::FileOps& ops);

}  // namespace weightstore
