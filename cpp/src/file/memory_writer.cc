#include "file/memory_writer.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "base/file_sink.h"
#include "base/layout_stream.h"
#include "io/copy_bytes.h"
#include "io/huge_buffer.h"
#include "io/parallel.h"
#include "io/progress_meter.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

constexpr std::uint64_t kWindowBytes = FileSink::kChunkBytes;
constexpr std::uint64_t kSmallFile = 2 * kWindowBytes;  // below, starting threads costs more than it gains

class MemoryWrite {
 public:
  MemoryWrite(const Layout& layout, std::span<const NewTensor> tensors, const Progress& progress, MutableBytes out)
      : layout_(layout),
        tensors_(tensors),
        out_(out),
        threads_(out.size() < kSmallFile ? 1 : 0),
        meter_(progress, out.size(), "writing was cancelled") {
    if (progress) watch_ = [this] { meter_.report(); };
  }

  std::vector<std::uint32_t> run(bool checksums) {
    copy_resident();
    for (const Layout::Placement& placement : layout_.placements) fill(placement);
    std::vector<std::uint32_t> crcs;
    if (checksums) crcs = compute_checksums();
    meter_.report_total();
    return crcs;
  }

 private:
  // Each thread takes a window of the memory at a time, and does all that is to be done in it. Windows begin at
  // multiples of kWindowBytes in the address space: a huge page that two threads share costs both of them.
  void copy_resident() {
    resident_.reserve(layout_.placements.size());
    for (const Layout::Placement& placement : layout_.placements) resident_.push_back(bytes_of(placement));
    const std::uint64_t shift = io::address_of(out_.data()) % kWindowBytes;
    const std::size_t windows = (shift + out_.size() + kWindowBytes - 1) / kWindowBytes;
    io::FreshPages pages({&out_, 1});
    io::parallel_for(
        windows, threads_,
        [&](std::size_t i) {
          const std::uint64_t begin = i == 0 ? 0 : i * kWindowBytes - shift;
          const std::uint64_t end = std::min<std::uint64_t>((i + 1) * kWindowBytes - shift, out_.size());
          if (threads_ != 1) pages.touch(out_.subspan(begin, end - begin));
          copy_window(begin, end);
        },
        threads_ == 1 ? std::function<void()>() : watch_);
  }

  std::optional<ConstBytes> bytes_of(const Layout::Placement& placement) const {
    const NewTensor& tensor = tensors_[placement.tensor];
    const std::uint64_t planned = placement.end - placement.begin;
    auto bytes = tensor.bytes->resident();
    if (bytes && bytes->size() != planned) throw wrong_size(tensor, bytes->size(), planned);
    return bytes;
  }

  void copy_window(std::uint64_t begin, std::uint64_t end) {
    std::uint64_t position = begin;
    if (begin < layout_.header.size()) {
      position = std::min<std::uint64_t>(end, layout_.header.size());
      std::memcpy(out_.data() + begin, layout_.header.data() + begin, position - begin);
    }
    const auto first =
        std::partition_point(layout_.placements.begin(), layout_.placements.end(),
                             [&](const Layout::Placement& placement) { return placement.end <= position; });
    for (auto placement = first; placement != layout_.placements.end() && placement->begin < end; ++placement) {
      const std::uint64_t from = std::max(position, placement->begin);
      const std::uint64_t to = std::min(end, placement->end);
      std::memset(out_.data() + position, 0, from - position);
      if (const auto& bytes = resident_[static_cast<std::size_t>(placement - layout_.placements.begin())]) {
        io::copy_bytes(out_.data() + from, bytes->data() + (from - placement->begin), to - from);
        meter_.add(to - from, tensors_[placement->tensor].name);
      }
      position = to;
    }
    std::memset(out_.data() + position, 0, end - position);
  }

  void fill(const Layout::Placement& placement) {
    const NewTensor& tensor = tensors_[placement.tensor];
    const bool is_copied = resident_[static_cast<std::size_t>(&placement - layout_.placements.data())].has_value();
    const std::uint64_t size = is_copied ? 0 : placement.end - placement.begin;
    try {
      for (std::uint64_t done = 0; done < size;) {
        const std::uint64_t count = std::min(size - done, kWindowBytes);
        tensor.bytes->fill(done, out_.subspan(placement.begin + done, count));
        done += count;
        meter_.add(count, tensor.name);
        if (watch_) watch_();
      }
      tensor.bytes->finished();
    } catch (Error& error) {
      error.in_tensor(tensor.name);
      throw;
    }
  }

  std::vector<std::uint32_t> compute_checksums() const {
    std::vector<std::uint32_t> crcs(tensors_.size(), 0);
    io::parallel_for(
        layout_.placements.size(), threads_,
        [&](std::size_t i) {
          const Layout::Placement& placement = layout_.placements[i];
          crcs[placement.tensor] = crc32c(out_.subspan(placement.begin, placement.end - placement.begin));
        },
        threads_ == 1 ? std::function<void()>() : watch_);
    return crcs;
  }

  const Layout& layout_;
  const std::span<const NewTensor> tensors_;
  const MutableBytes out_;
  const unsigned threads_;  // 1: the calling one
  io::ProgressMeter meter_;
  std::function<void()> watch_;                      // empty without a Progress
  std::vector<std::optional<ConstBytes>> resident_;  // by placement
};

}  // namespace

std::vector<std::uint32_t> write_memory(const Layout& layout, std::span<const NewTensor> tensors, bool checksums,
                                        const Progress& progress, MutableBytes out) {
  return MemoryWrite(layout, tensors, progress, out).run(checksums);
}

}  // namespace weightstore
