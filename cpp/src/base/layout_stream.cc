#include "base/layout_stream.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "weightstore/checksum.h"
#include "weightstore/file_bytes.h"

namespace weightstore {
namespace {

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

// Puts header, gaps and tensors into a sink, in the order of the layout.
class Streamer {
 public:
  Streamer(const Layout& layout, std::span<const NewTensor> tensors, bool checksums, const Progress& progress,
           FileSink& sink)
      : layout_(layout), tensors_(tensors), computes_checksums_(checksums), progress_(progress), sink_(sink) {}

  std::vector<std::uint32_t> run() {
    if (computes_checksums_) checksums_.assign(tensors_.size(), 0);
    put({reinterpret_cast<const std::byte*>(layout_.header.data()), layout_.header.size()});
    for (const Layout::Placement& placement : layout_.placements) {
      put_zeros(placement.begin - position_);
      put_tensor(placement);
    }
    put_zeros(layout_.file_size - position_);
    sink_.finish();
    tell_finished();
    if (progress_) report();
    return std::move(checksums_);
  }

 private:
  void put_tensor(const Layout::Placement& placement) {
    const NewTensor& tensor = tensors_[placement.tensor];
    const std::uint64_t size = placement.end - placement.begin;
    std::uint32_t* checksum = computes_checksums_ ? &checksums_[placement.tensor] : nullptr;
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
      const MutableBytes part =
          space.first(std::min<std::uint64_t>({space.size(), size - done, FileSink::kChunkBytes}));
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
      const MutableBytes part = space.first(std::min<std::uint64_t>({space.size(), count, FileSink::kChunkBytes}));
      std::memset(part.data(), 0, part.size());
      sink_.advance(part.size());
      moved(part.size());
      count -= part.size();
    }
  }

  std::size_t until_boundary() const { return FileSink::kChunkBytes - position_ % FileSink::kChunkBytes; }

  void moved(std::size_t count) {
    position_ += count;
    unreported_ += count;
    // The report that all is done comes when all is written, not before.
    if (progress_ && unreported_ >= FileSink::kChunkBytes && position_ < layout_.file_size) report();
  }

  void report() {
    unreported_ = 0;
    if (!progress_(position_, layout_.file_size, name_)) {
      throw Error(ErrorCode::kCancelled, "writing was cancelled");
    }
  }

  const Layout& layout_;
  const std::span<const NewTensor> tensors_;
  const bool computes_checksums_;
  const Progress& progress_;
  FileSink& sink_;
  std::vector<std::uint32_t> checksums_;
  std::vector<ByteProducer*> unfinished_;
  std::uint64_t position_ = 0;
  std::uint64_t unreported_ = 0;
  std::string_view name_;
};

}  // namespace

Error wrong_size(const NewTensor& tensor, std::uint64_t found, std::uint64_t planned) {
  Error error(ErrorCode::kInvalidArgument, "the tensor's producer has " + std::to_string(found) + " bytes where " +
                                               std::to_string(planned) + " were planned");
  error.in_tensor(tensor.name);
  return error;
}

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

std::vector<std::uint32_t> stream_layout(const Layout& layout, std::span<const NewTensor> tensors, bool checksums,
                                         const Progress& progress, FileSink& sink) {
  return Streamer(layout, tensors, checksums, progress, sink).run();
}

std::vector<std::byte> stream_memory(const Layout& layout, std::span<const NewTensor> tensors, const Progress& progress,
                                     std::vector<std::uint32_t>* checksums) {
  check_layout(layout, tensors);
  std::vector<std::byte> out(layout.file_size);
  MemorySink sink(out);
  auto computed = stream_layout(layout, tensors, checksums != nullptr, progress, sink);
  if (checksums != nullptr) *checksums = std::move(computed);
  return out;
}

std::vector<std::byte> file_bytes(const FileContents& contents, const Layout& layout) {
  return stream_memory(layout, contents.tensors(), {}, nullptr);
}

}  // namespace weightstore
