#include <cstring>

#include "io/checked_io.h"
#include "io/file_sink.h"
#include "io/huge_buffer.h"

namespace weightstore::io {
namespace {

constexpr std::size_t kSmall = 256 << 10;  // below, a copy costs less than a system call of its own

// Writes end at multiples of the block size in the file wherever they can, so that no page is written twice.
class BufferedSink final : public FileSink {
 public:
  BufferedSink(int fd, std::string path, FileOps& ops)
      : ops_(ops), fd_(fd), path_(std::move(path)), block_(allocate_bulk(kBlockBytes)) {}

  MutableBytes space() override { return block_.bytes.subspan(filled_, until_boundary()); }

  void advance(std::size_t count) override {
    filled_ += count;
    if (until_boundary() == kBlockBytes) flush();
  }

  void append(ConstBytes bytes) override {
    while (!bytes.empty()) {
      const ConstBytes part = bytes.first(std::min(bytes.size(), until_boundary()));
      if (part.size() < kSmall) {
        std::memcpy(space().data(), part.data(), part.size());
        advance(part.size());
      } else {
        flush();
        write_fully(ops_, fd_, part, position_, path_);
        position_ += part.size();
      }
      bytes = bytes.subspan(part.size());
    }
  }

  void finish() override { flush(); }

 private:
  // Never 0: at a boundary the block is flushed, and a whole block is ahead.
  std::size_t until_boundary() const { return kBlockBytes - (position_ + filled_) % kBlockBytes; }

  void flush() {
    write_fully(ops_, fd_, block_.bytes.first(filled_), position_, path_);
    position_ += filled_;
    filled_ = 0;
  }

  FileOps& ops_;
  const int fd_;
  const std::string path_;
  SharedMutableBytes block_;
  std::uint64_t position_ = 0;  // where the block belongs
  std::size_t filled_ = 0;
};

}  // namespace

std::unique_ptr<FileSink> buffered_sink(int fd, std::string path, FileOps& ops) {
  return std::make_unique<BufferedSink>(fd, std::move(path), ops);
}

}  // namespace weightstore::io
