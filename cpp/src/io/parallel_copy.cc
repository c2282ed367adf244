#include "io/parallel_copy.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "io/checked_io.h"
#include "io/copy_bytes.h"
#include "io/copy_plan.h"
#include "io/direct_file.h"
#include "io/huge_buffer.h"
#include "io/page_cache.h"
#include "io/parallel.h"
#include "io/progress_meter.h"

// Threads take windows of the plan in ascending order. In a window, a run of pieces that lie close together is read at
// once into the thread's ready buffer and copied out when its pieces are small (one system call instead of many) or
// when it is not cached (O_DIRECT wants aligned memory, and memory that was never touched would slow the device down).
// Other pieces are read straight into their place.
//
// Direct reads only ever save time: when one fails or comes back short, the same run is read the ordinary way, and that
// read's error is the one reported.

namespace weightstore::io {
namespace {

constexpr std::uint64_t kSmallRequest = 2 * kChunkBytes;  // below, starting threads costs more than it gains
constexpr std::uint64_t kSmallPiece = 64 << 10;           // below, a system call costs more than a copy
constexpr std::uint64_t kNearby = 64 << 10;               // gaps up to this are read rather than skipped
constexpr std::size_t kStep = 256 << 10;
constexpr std::size_t kProbes = 8;

class Copy {
 public:
  Copy(std::span<const CopyRange> ranges, const CopyPlan& plan, const CopyOptions& options, ProgressMeter& meter)
      : ranges_(ranges),
        plan_(plan),
        meter_(meter),
        fresh_(!options.fresh.empty()),
        fresh_pages_(options.fresh),
        ops_(options.ops) {
    if (options.direct == DirectIo::kNever || plan.total_bytes < kSmallRequest) return;
    for (std::size_t i = 0; i < plan.window_count(); ++i) {
      const ByteSource* source = ranges[plan.window(i).front().range].source;
      if (source->descriptor() < 0 || direct_.contains(source)) continue;
      direct_.try_emplace(source, ops_, source->descriptor());
    }
  }

  unsigned threads(unsigned asked) const {
    const unsigned most = static_cast<unsigned>(std::min<std::size_t>(plan_.window_count(), 64));
    if (asked != 0) return std::min(asked, most);
    // One more than there are processors keeps the device busy while the others copy.
    return std::min(default_threads() + (looks_cold() ? 1 : 0), most);
  }

  void run(unsigned threads, const std::function<void()>& watch) {
    std::vector<Buffer> buffers(threads);
    parallel_for(
        plan_.window_count(), threads,
        [&](std::size_t i, const Worker& worker) { copy_window(plan_.window(i), buffers[worker.number]); }, watch);
  }

  // The same on the calling thread.
  void run_here() {
    Buffer buffer;
    for (std::size_t i = 0; i < plan_.window_count(); ++i) {
      copy_window(plan_.window(i), buffer);
      if (i + 1 < plan_.window_count()) meter_.report();
    }
  }

 private:
  // Memory of a thread, made when first needed and touched by its first use.
  class Buffer {
   public:
    std::byte* get() {
      if (memory_.bytes.empty()) memory_ = allocate_bulk(kChunkBytes);
      return memory_.bytes.data();
    }

   private:
    SharedMutableBytes memory_;
  };

  DirectFile* direct_file(const ByteSource* source) {
    const auto found = direct_.find(source);
    return found != direct_.end() && found->second.usable() ? &found->second : nullptr;
  }

  bool looks_cold() const {
    std::size_t cold = 0;
    const std::size_t probes = std::min(kProbes, plan_.window_count());
    for (std::size_t i = 0; i < probes; ++i) {
      const auto window = plan_.window(i * plan_.window_count() / probes);
      const auto found = direct_.find(ranges_[window.front().range].source);
      if (found == direct_.end() || !found->second.usable()) continue;
      const std::uint64_t begin = window.front().offset;
      if (found->second.is_cold(begin, window.front().end() - begin)) ++cold;
    }
    return cold * 2 > probes;
  }

  void copy_window(std::span<const CopyPiece> window, Buffer& buffer) {
    const ByteSource& source = *ranges_[window.front().range].source;
    while (!window.empty()) {
      const std::size_t count = run_length(window);
      copy_run(source, window.first(count), buffer);
      window = window.subspan(count);
    }
  }

  // Pieces from the front that are worth reading together. They may overlap.
  static std::size_t run_length(std::span<const CopyPiece> pieces) {
    std::uint64_t end = pieces.front().end();
    std::size_t count = 1;
    for (; count < pieces.size() && pieces[count].offset <= end + kNearby; ++count) {
      end = std::max(end, pieces[count].end());
    }
    return count;
  }

  void copy_run(const ByteSource& source, std::span<const CopyPiece> run, Buffer& buffer) {
    const std::uint64_t begin = run.front().offset;
    std::uint64_t end = begin;
    std::uint64_t bytes = 0;
    for (const CopyPiece& piece : run) {
      end = std::max(end, piece.end());
      bytes += piece.length;
      if (fresh_) fresh_pages_.touch({piece.out, piece.length});
    }
    try {
      if (!copy_direct(source, begin, end, run, buffer)) copy_ordinary(source, run, buffer);
    } catch (Error& error) {
      error.in_file(source.name()).in_tensor(ranges_[run.front().range].name);
      throw;
    }
    meter_.add(bytes, ranges_[run.front().range].name);
  }

  bool copy_direct(const ByteSource& source, std::uint64_t begin, std::uint64_t end, std::span<const CopyPiece> run,
                   Buffer& buffer) {
    DirectFile* file = direct_file(&source);
    if (file == nullptr || !file->is_cold(begin, end - begin)) return false;
    // Windows are aligned, so the rounded range stays inside this one and fits the buffer.
    const std::uint64_t aligned = begin / kDirectAlignment * kDirectAlignment;
    if (!file->read(aligned, end - aligned, buffer.get())) return false;
    scatter(run, aligned, buffer.get());
    return true;
  }

  void copy_ordinary(const ByteSource& source, std::span<const CopyPiece> run, Buffer& buffer) {
    while (!run.empty()) {
      std::size_t small = 0;
      while (small < run.size() && run[small].length < kSmallPiece) ++small;
      if (small > 1 && source.descriptor() >= 0) {
        copy_together(source, run.first(small), buffer);
      } else {
        small = 1;
        copy_piece(source, run.front(), buffer);
      }
      run = run.subspan(small);
    }
  }

  static void copy_together(const ByteSource& source, std::span<const CopyPiece> run, Buffer& buffer) {
    const std::uint64_t begin = run.front().offset;
    std::uint64_t end = begin;
    for (const CopyPiece& piece : run) end = std::max(end, piece.end());
    source.read_at(begin, {buffer.get(), end - begin});
    scatter(run, begin, buffer.get());
  }

  static void copy_piece(const ByteSource& source, const CopyPiece& piece, Buffer& buffer) {
    // A mapping of a file may raise SIGBUS and has page faults to pay for; a read has neither.
    if (source.descriptor() < 0) {
      if (const auto view = source.view(piece.offset, piece.length)) {
        copy_bytes(piece.out, view->bytes.data(), piece.length);
        return;
      }
    }
    if (source.descriptor() >= 0 && is_slow_copy(address_of(piece.out), piece.offset, piece.length)) {
      copy_in_steps(source, piece, buffer.get() + piece.offset % kDirectAlignment);
    } else {
      source.read_at(piece.offset, {piece.out, piece.length});
    }
  }

  // Through memory that stays in the inner cache; `step` lies in its page as the piece does in the file.
  static void copy_in_steps(const ByteSource& source, const CopyPiece& piece, std::byte* step) {
    for (std::size_t done = 0; done < piece.length; done += kStep) {
      const std::size_t count = std::min<std::size_t>(kStep, piece.length - done);
      source.read_at(piece.offset + done, {step, count});
      copy_bytes(piece.out + done, step, count);
    }
  }

  static void scatter(std::span<const CopyPiece> run, std::uint64_t begin, const std::byte* buffer) {
    for (const CopyPiece& piece : run) copy_bytes(piece.out, buffer + (piece.offset - begin), piece.length);
  }

  const std::span<const CopyRange> ranges_;
  const CopyPlan& plan_;
  ProgressMeter& meter_;
  const bool fresh_;
  FreshPages fresh_pages_;
  FileOps& ops_;
  std::map<const ByteSource*, DirectFile> direct_;  // not changed once threads run
};

}  // namespace

void parallel_copy(std::span<const CopyRange> ranges, const CopyOptions& options, const Progress& progress) {
  const CopyPlan plan = plan_copy(ranges);
  ProgressMeter meter(progress, plan.total_bytes, "reading was cancelled");
  Copy copy(ranges, plan, options, meter);
  if (plan.total_bytes < kSmallRequest || options.threads == 1) {
    copy.run_here();
  } else {
    copy.run(copy.threads(options.threads), progress ? [&] { meter.report(); } : std::function<void()>());
  }
  meter.report_total();
}

}  // namespace weightstore::io
