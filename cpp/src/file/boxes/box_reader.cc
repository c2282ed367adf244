#include "file/boxes/box_reader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/strided/strided_copy.h"
#include "io/checked_io.h"
#include "io/huge_buffer.h"
#include "io/parallel.h"
#include "io/parallel_copy.h"
#include "io/progress_meter.h"
#include "weightstore/error.h"

// A box is cut into smaller boxes of up to 4 MiB. Where such a box is one run of the file and of the memory, it goes to
// parallel_copy(), which knows how to read large ranges. Any other is gathered from the file, into its place if that is
// one run of memory, else into a buffer from which it is scattered.

namespace weightstore {
namespace {

constexpr std::uint64_t kSmallRun = 256u << 10;  // shorter runs are gathered

struct SmallBox {
  std::size_t wanted;
  TensorBox box;
  std::byte* out;
};

std::uint64_t bytes_of_box(const TensorBox& box) {
  std::uint64_t bytes = box.item_bytes;
  for (const std::uint64_t count : box.size) bytes *= count;
  return bytes;
}

// True when the box is one run of its memory.
bool is_one_run(const WantedBox& wanted, const TensorBox& box) {
  auto expected = static_cast<std::int64_t>(box.item_bytes);
  for (std::size_t i = box.size.size(); i-- > 0;) {
    if (box.size[i] == 1) continue;
    if (wanted.byte_strides[i] != expected) return false;
    expected *= static_cast<std::int64_t>(box.size[i]);
  }
  return true;
}

void check_wanted(const WantedBox& wanted, const BoxRuns& runs) {
  const std::uint64_t found = wanted.reader->table().nbytes(wanted.tensor);
  if (runs.tensor_bytes() != found) {
    throw Error(ErrorCode::kInvalidArgument, "the tensor has " + std::to_string(found) + " bytes, not " +
                                                 std::to_string(runs.tensor_bytes()) + " as its shape and type say");
  }
  if (wanted.byte_strides.size() != wanted.box.shape.size()) {
    throw Error(ErrorCode::kInvalidArgument, std::to_string(wanted.byte_strides.size()) + " strides for " +
                                                 std::to_string(wanted.box.shape.size()) + " dimensions");
  }
}

class BoxRead {
 public:
  BoxRead(std::span<const WantedBox> boxes, unsigned threads, io::FileOps& ops)
      : boxes_(boxes), threads_(threads == 0 ? io::default_threads() : threads), ops_(ops) {}

  void run(const Progress& progress) {
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      const WantedBox& wanted = boxes_[i];
      try {
        const BoxRuns runs(wanted.box);
        check_wanted(wanted, runs);
        total += runs.bytes();
        if (runs.bytes() > 0) cut(i, wanted.box, wanted.out, runs.run_bytes() >= kSmallRun || runs.run_count() == 1);
      } catch (Error& error) {
        rethrow(error, wanted);
      }
    }
    verify();
    io::ProgressMeter meter(progress, total, "reading was cancelled");
    const auto watch = progress ? [&] { meter.report(); } : std::function<void()>();
    std::vector<SharedMutableBytes> buffers(threads_);
    io::parallel_for(
        gathered_.size(), threads_,
        [&](std::size_t i, const io::Worker& worker) {
          const SmallBox& small = gathered_[i];
          gather(small, buffers[worker.number]);
          meter.add(bytes_of_box(small.box), boxes_[small.wanted].reader->table().name(boxes_[small.wanted].tensor));
        },
        watch);
    buffers.clear();
    if (!ranges_.empty()) {
      std::uint64_t long_bytes = 0;
      for (const io::CopyRange& range : ranges_) long_bytes += range.out.size();
      io::parallel_copy(ranges_, {threads_, DirectIo::kAuto, ops_, {}},
                        progress ? meter.reporting(long_bytes) : Progress());
    }
    meter.report_total();
  }

 private:
  [[noreturn]] static void rethrow(Error& error, const WantedBox& wanted) {
    const TensorTable& table = wanted.reader->table();
    throw error.in_tensor(table.name(wanted.tensor)).in_file(table.sources()[table.source_of(wanted.tensor)]->name());
  }

  // Halves a box along its outermost dimension until it is small. A long run of file and memory stays whole.
  void cut(std::size_t number, const TensorBox& box, std::byte* out, bool has_long_runs) {
    const WantedBox& wanted = boxes_[number];
    if (has_long_runs && is_one_run(wanted, box)) {
      const BoxRuns runs(box);
      if (runs.run_count() == 1) return add_range(wanted, runs, out);
    }
    if (bytes_of_box(box) <= io::kChunkBytes) {
      gathered_.push_back({number, box, out});
      return;
    }
    std::size_t axis = 0;
    while (box.size[axis] == 1) ++axis;
    TensorBox half = box;
    half.size[axis] = box.size[axis] / 2;
    cut(number, half, out, has_long_runs);
    half.begin[axis] += half.size[axis];
    out += static_cast<std::int64_t>(half.size[axis]) * wanted.byte_strides[axis];
    half.size[axis] = box.size[axis] - half.size[axis];
    cut(number, half, out, has_long_runs);
  }

  void add_range(const WantedBox& wanted, const BoxRuns& runs, std::byte* out) {
    const TensorTable& table = wanted.reader->table();
    ranges_.push_back({table.sources()[table.source_of(wanted.tensor)].get(),
                       table.begin(wanted.tensor) + runs.offset_of(0), MutableBytes(out, runs.bytes()),
                       table.name(wanted.tensor)});
  }

  // Of tensors that have a checksum; each once, whoever reads it.
  void verify() {
    std::vector<std::pair<const Reader*, std::size_t>> tensors;
    for (const WantedBox& wanted : boxes_) {
      if (wanted.reader->has_checksum(wanted.tensor)) tensors.emplace_back(wanted.reader, wanted.tensor);
    }
    std::sort(tensors.begin(), tensors.end());
    tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
    io::parallel_for(tensors.size(), threads_,
                     [&](std::size_t i) { tensors[i].first->read_range(tensors[i].second, 0, {}); });
  }

  void gather(const SmallBox& small, SharedMutableBytes& buffer) {
    const WantedBox& wanted = boxes_[small.wanted];
    const TensorTable& table = wanted.reader->table();
    const ByteSource& source = *table.sources()[table.source_of(wanted.tensor)];
    const std::uint64_t bytes = bytes_of_box(small.box);
    try {
      const StridedReader selection(BoxRuns(small.box).elements(table.begin(wanted.tensor)));
      if (is_one_run(wanted, small.box)) {
        selection.read(source, 0, {small.out, bytes});
        return;
      }
      if (buffer.bytes.empty()) buffer = io::allocate_bulk(io::kChunkBytes);
      selection.read(source, 0, buffer.bytes.first(bytes));
      scatter(wanted, small, buffer.bytes.data());
    } catch (Error& error) {
      rethrow(error, wanted);
    }
  }

  static void scatter(const WantedBox& wanted, const SmallBox& small, const std::byte* from) {
    // The innermost dimensions that lie together in the memory are copied as runs.
    std::size_t outer = small.box.size.size();
    std::uint64_t run = small.box.item_bytes;
    while (outer > 0 &&
           (small.box.size[outer - 1] == 1 || wanted.byte_strides[outer - 1] == static_cast<std::int64_t>(run))) {
      run *= small.box.size[--outer];
    }
    std::vector<CopyAxis> axes;
    auto step = static_cast<std::int64_t>(run);
    for (std::size_t i = outer; i-- > 0;) {
      axes.push_back({small.box.size[i], step, wanted.byte_strides[i]});
      step *= static_cast<std::int64_t>(small.box.size[i]);
    }
    copy_strided(axes, from, small.out, run);
  }

  const std::span<const WantedBox> boxes_;
  const unsigned threads_;
  io::FileOps& ops_;
  std::vector<SmallBox> gathered_;
  std::vector<io::CopyRange> ranges_;
};

}  // namespace

void read_boxes(std::span<const WantedBox> boxes, unsigned threads, const Progress& progress, io::FileOps& ops) {
  BoxRead(boxes, threads, ops).run(progress);
}

}  // namespace weightstore
