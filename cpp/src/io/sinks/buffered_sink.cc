#include <algorithm>
#include <vector>

#include "io/checked_io.h"
#include "io/copy_bytes.h"
#include "io/huge_buffer.h"
#include "io/sinks/file_sink.h"

// One write a chunk of the file, aligned in the file: pages that two writes share cost both of them. What lies in
// memory is gathered from there by the system; small pieces and produced bytes wait in a chunk of ours.

namespace weightstore::io {
namespace {

constexpr std::size_t kSmall = 16 << 10;  // below, a copy costs less than a place in the gather list

class BufferedSink final : public FileSink {
 public:
  BufferedSink(FileRange range, FileOps& ops)
      : ops_(ops),
        fd_(range.fd),
        path_(std::move(range.path)),
        chunk_(allocate_bulk(kChunkBytes)),
        position_(range.begin) {}

  MutableBytes space() override { return chunk_.bytes.subspan(used_, until_boundary()); }

  void advance(std::size_t count) override {
    add(chunk_.bytes.data() + used_, count);
    used_ += count;
    flush_at_boundary();
  }

  void append(ConstBytes bytes) override {
    while (!bytes.empty()) {
      const ConstBytes part = bytes.first(std::min(bytes.size(), until_boundary()));
      if (part.size() < kSmall || is_slow_copy(position_ + waiting_, address_of(part.data()), part.size())) {
        copy_bytes(space().data(), part.data(), part.size());
        advance(part.size());
      } else {
        add(const_cast<std::byte*>(part.data()), part.size());
        holds_memory_ = true;
        flush_at_boundary();
      }
      bytes = bytes.subspan(part.size());
    }
  }

  bool holds_memory() const override { return holds_memory_; }
  void finish() override { flush(); }

  // The list stays below IOV_MAX: between two pieces of ours lies one of kSmall at least.
  void flush() override {
    write_fully(ops_, fd_, std::span(pieces_), position_, path_);
    pieces_.clear();
    position_ += waiting_;
    waiting_ = 0;
    used_ = 0;
    holds_memory_ = false;
  }

 private:
  // Never 0: at a boundary everything is written, and a whole chunk is ahead.
  std::size_t until_boundary() const { return kChunkBytes - (position_ + waiting_) % kChunkBytes; }

  void add(std::byte* data, std::size_t size) {
    if (size == 0) return;
    waiting_ += size;
    if (!pieces_.empty() && static_cast<std::byte*>(pieces_.back().iov_base) + pieces_.back().iov_len == data) {
      pieces_.back().iov_len += size;
    } else {
      pieces_.push_back({data, size});
    }
  }

  void flush_at_boundary() {
    if (until_boundary() == kChunkBytes) flush();
  }

  FileOps& ops_;
  const int fd_;
  const std::string path_;
  SharedMutableBytes chunk_;
  std::size_t used_ = 0;              // bytes of chunk_ in pieces_
  std::vector<struct iovec> pieces_;  // what comes next in the file
  std::size_t waiting_ = 0;           // bytes in pieces_
  std::uint64_t position_;            // where pieces_ belongs
  bool holds_memory_ = false;
};

}  // namespace

std::unique_ptr<FileSink> buffered_sink(FileRange range, FileOps& ops) {
  return std::make_unique<BufferedSink>(std::move(range), ops);
}

}  // namespace weightstore::io
