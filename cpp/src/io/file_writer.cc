#include "io/file_writer.h"

#include <memory>

#include "base/layout_stream.h"
#include "io/checked_io.h"
#include "io/sinks/file_sink.h"
#include "weightstore/error.h"

namespace weightstore::io {
namespace {

constexpr std::uint64_t kSmallFile = 2 * kChunkBytes;  // below, the ring of a direct sink costs more than it gains

std::string free_space_text(int fd, FileOps& ops) {
  struct statvfs status;
  if (ops.fstatvfs(fd, &status) != 0) return "";
  return "; its file system has " + std::to_string(std::uint64_t{status.f_bavail} * status.f_frsize) + " free";
}

// Reserves the file's blocks, so that a full disk is found before anything is written and writes need not allocate.
void preallocate(const OutputFile& file, std::uint64_t size, FileOps& ops) {
  if (size == 0) return;
  const int done = retry_interrupted([&] { return ops.fallocate(file.fd(), 0, static_cast<off_t>(size)); });
  if (done == 0) return;
  const int error = errno;
  if (error == EOPNOTSUPP || error == ENOSYS || error == EINVAL) return;  // not every file system can
  throw io_error(error,
                 "cannot reserve the " + std::to_string(size) + " bytes of the file" +
                     (error == ENOSPC ? free_space_text(file.fd(), ops) : std::string()),
                 file.target_path());
}

}  // namespace

std::vector<std::uint32_t> stream_file(const OutputFile& file, const Layout& layout, std::span<const NewTensor> tensors,
                                       const StreamOptions& options, FileOps& ops) {
  check_layout(layout, tensors);
  preallocate(file, layout.file_size, ops);
  const FileRange whole{file.fd(), 0, layout.file_size, file.target_path()};
  std::unique_ptr<FileSink> sink;
  if (options.durable && layout.file_size >= kSmallFile) sink = direct_sink(whole, ops);
  if (sink == nullptr) sink = adaptive_sink(whole, ops);
  try {
    return stream_layout(layout, tensors, options.checksums, options.progress, *sink);
  } catch (Error& error) {
    error.in_file(file.target_path());
    throw;
  }
}

void rewrite_header(const OutputFile& file, const std::string& header, FileOps& ops) {
  write_fully(ops, file.fd(), {reinterpret_cast<const std::byte*>(header.data()), header.size()}, 0,
              file.target_path());
}

}  // namespace weightstore::io
