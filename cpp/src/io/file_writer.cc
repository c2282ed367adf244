#include "io/file_writer.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "io/checked_io.h"
#include "io/sinks/file_sink.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"

namespace weightstore::io {
namespace {

constexpr std::uint64_t kSmallFile = 2 * kChunkBytes;  // below, the ring of a direct sink costs more than it gains

// A file in memory that has its size already.
class MemorySink final : public FileSink {
 public:
  explicit MemorySink(MutableBytes out) : out_(out) {}

  MutableBytes space() override { return out_; }
  void advance(std::size_t count) override { out_ = out_.subspan(count); }
  void append(ConstBytes bytes) override {
    std::memcpy(out_.data(), bytes.data(), bytes.size());
    advance(bytes.size());
  }
  void finish() override {}

 private:
  MutableBytes out_;
};

Error wrong_size(const NewTensor& tensor, std::uint64_t found, std::uint64_t planned) {
  Error error(ErrorCode::kInvalidArgument, "the tensor's producer has " + std::to_string(found) + " bytes where " +
                                               std::to_string(planned) + " were planned");
  error.in_tensor(tensor.name);
  return error;
}

// Puts header, gaps and tensors into a sink, in the order of the layout.
class Streamer {
 public:
  Streamer(const Layout& layout, std::span<const NewTensor> tensors, const StreamOptions& options, FileSink& sink)
      : layout_(layout), tensors_(tensors), options_(options), sink_(sink) {}

  std::vector<std::uint32_t> run() {
    if (options_.checksums) checksums_.assign(tensors_.size(), 0);
    put({reinterpret_cast<const std::byte*>(layout_.header.data()), layout_.header.size()});
    for (const Layout::Placement& placement : layout_.placements) {
      put_zeros(placement.begin - position_);
      put_tensor(placement);
    }
    put_zeros(layout_.file_size - position_);
    sink_.finish();
    tell_finished();
    if (options_.progress) report();
    return std::move(checksums_);
  }

 private:
  void put_tensor(const Layout::Placement& placement) {
    const NewTensor& tensor = tensors_[placement.tensor];
    const std::uint64_t size = placement.end - placement.begin;
    std::uint32_t* checksum = options_.checksums ? &checksums_[placement.tensor] : nullptr;
    name_ = tensor.name;
    try {
      if (const auto bytes = tensor.bytes->resident()) {
        if (bytes->size() != size) throw wrong_size(tensor, bytes->size(), size);
        put(*bytes, checksum);
      } else {
        put_produced(*tensor.bytes, size, checksum);
      }
      unfinished_.push_back(tensor.bytes.get());
      if (!sink_.holds_memory()) tell_finished();
    } catch (Error& error) {
      error.in_tensor(name_);
      throw;
    }
  }

  // Producers may give back their memory only when the sink needs it no more.
  void tell_finished() {
    for (ByteProducer* producer : unfinished_) producer->finished();
    unfinished_.clear();
  }

  void put(ConstBytes bytes, std::uint32_t* checksum = nullptr) {
    while (!bytes.empty()) {
      const ConstBytes part = bytes.first(std::min(bytes.size(), until_boundary()));
      if (checksum != nullptr) *checksum = crc32c(part, *checksum);
      sink_.append(part);
      moved(part.size());
      bytes = bytes.subspan(part.size());
    }
  }

  void put_produced(ByteProducer& producer, std::uint64_t size, std::uint32_t* checksum) {
    for (std::uint64_t done = 0; done < size;) {
      const MutableBytes space = sink_.space();
      const MutableBytes part = space.first(std::min<std::uint64_t>({space.size(), size - done, kChunkBytes}));
      producer.fill(done, part);
      if (checksum != nullptr) *checksum = crc32c(part, *checksum);
      sink_.advance(part.size());
      moved(part.size());
      done += part.size();
    }
  }

  void put_zeros(std::uint64_t count) {
    while (count > 0) {
      const MutableBytes space = sink_.space();
      const MutableBytes part = space.first(std::min<std::uint64_t>({space.size(), count, kChunkBytes}));
      std::memset(part.data(), 0, part.size());
      sink_.advance(part.size());
      moved(part.size());
      count -= part.size();
    }
  }

  std::size_t until_boundary() const { return kChunkBytes - position_ % kChunkBytes; }

  void moved(std::size_t count) {
    position_ += count;
    unreported_ += count;
    // The report that all is done comes when all is written, not before.
    if (options_.progress && unreported_ >= kChunkBytes && position_ < layout_.file_size) report();
  }

  void report() {
    unreported_ = 0;
    if (!options_.progress(position_, layout_.file_size, name_)) {
      throw Error(ErrorCode::kCancelled, "writing was cancelled");
    }
  }

  const Layout& layout_;
  const std::span<const NewTensor> tensors_;
  const StreamOptions& options_;
  FileSink& sink_;
  std::vector<std::uint32_t> checksums_;
  std::vector<ByteProducer*> unfinished_;
  std::uint64_t position_ = 0;
  std::uint64_t unreported_ = 0;
  std::string_view name_;
};

// Layouts come from our own planners; the sizes of producers come from callers and may have changed since.
void check_layout(const Layout& layout, std::span<const NewTensor> tensors) {
  std::uint64_t position = layout.header.size();
  for (const Layout::Placement& placement : layout.placements) {
    if (placement.tensor >= tensors.size() || placement.begin < position || placement.end < placement.begin) {
      throw Error(ErrorCode::kInvalidArgument, "the plan of the file is out of order").at_offset(placement.begin);
    }
    const NewTensor& tensor = tensors[placement.tensor];
    const std::uint64_t planned = placement.end - placement.begin;
    if (tensor.bytes->size() != planned) throw wrong_size(tensor, tensor.bytes->size(), planned);
    position = placement.end;
  }
  if (position > layout.file_size) {
    throw Error(ErrorCode::kInvalidArgument, "the plan of the file is longer than the file").at_offset(position);
  }
}

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
    return Streamer(layout, tensors, options, *sink).run();
  } catch (Error& error) {
    error.in_file(file.target_path());
    throw;
  }
}

void rewrite_header(const OutputFile& file, const std::string& header, FileOps& ops) {
  write_fully(ops, file.fd(), {reinterpret_cast<const std::byte*>(header.data()), header.size()}, 0,
              file.target_path());
}

std::vector<std::byte> stream_memory(const Layout& layout, std::span<const NewTensor> tensors,
                                     const StreamOptions& options, std::vector<std::uint32_t>* checksums) {
  check_layout(layout, tensors);
  std::vector<std::byte> out(layout.file_size);
  MemorySink sink(out);
  auto computed = Streamer(layout, tensors, options, sink).run();
  if (checksums != nullptr) *checksums = std::move(computed);
  return out;
}

}  // namespace weightstore::io
