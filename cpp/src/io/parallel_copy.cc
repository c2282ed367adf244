#include "io/parallel_copy.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>

#include "io/checked_io.h"
#include "io/copy_bytes.h"
#include "io/copy_plan.h"
#include "io/direct_file.h"
#include "io/huge_buffer.h"
#include "io/page_cache.h"
#include "io/parallel.h"

// Threads take windows of the plan in ascending order. In a window, a run of pieces that lie close together is read at
// once into the thread's ready buffer and copied out when its pieces are small (one system call instead of many) or
// when it is not cached (O_DIRECT wants aligned memory, and memory that was never touched would slow the device down).
// Other pieces are read straight into their place.
//
// Direct reads only ever save time: when one fails or comes back short, the same run is read the ordinary way, and that
// read's error is the one reported.

namespace weightstore::io {
namespace {

constexpr std::uint64_t kSmallRequest = 2 * kBlockBytes;  // below, starting threads costs more than it gains
constexpr std::uint64_t kSmallPiece = 64 << 10;           // below, a system call costs more than a copy
constexpr std::uint64_t kNearby = 64 << 10;               // gaps up to this are read rather than skipped
constexpr std::size_t kStep = 256 << 10;
constexpr std::size_t kProbes = 8;

class Copy {
 public:
  Copy(std::span<const CopyJob> jobs, const CopyPlan& plan, const CopyOptions& options)
      : jobs_(jobs),
        plan_(plan),
        fresh_(!options.fresh.empty()),
        fresh_pages_(options.fresh),
        ops_(options.ops != nullptr ? *options.ops : system_file_ops()) {
    if (options.direct == DirectIo::kNever || plan.total_bytes < kSmallRequest) return;
    for (std::size_t i = 0; i < plan.window_count(); ++i) {
      const ByteSource* source = jobs[plan.window(i).front().job].source;
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

  // What every thread does until all windows are taken.
  void work(const StopFlag& stop) {
    Buffer buffer;
    while (!stop.is_set()) {
      const std::size_t window = next_.fetch_add(1, std::memory_order_relaxed);
      if (window >= plan_.window_count()) return;
      copy_window(plan_.window(window), buffer);
    }
  }

  // The same on the calling thread alone.
  void work_alone(const std::function<void()>& watch) {
    Buffer buffer;
    for (std::size_t i = 0; i < plan_.window_count(); ++i) {
      copy_window(plan_.window(i), buffer);
      watch();
    }
  }

  std::uint64_t done() const { return done_.load(std::memory_order_relaxed); }

  // The tensor that was begun last.
  std::string_view current() const {
    const std::size_t window = std::min(next_.load(std::memory_order_relaxed), plan_.window_count());
    return jobs_[plan_.window(window == 0 ? 0 : window - 1).back().job].name;
  }

 private:
  // Memory of a thread, made when first needed and touched by its first use.
  class Buffer {
   public:
    std::byte* get() {
      if (memory_.bytes.empty()) memory_ = allocate_bulk(kBlockBytes);
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
      const auto found = direct_.find(jobs_[window.front().job].source);
      if (found == direct_.end() || !found->second.usable()) continue;
      const std::uint64_t begin = window.front().offset;
      if (found->second.is_cold(begin, window.front().end() - begin)) ++cold;
    }
    return cold * 2 > probes;
  }

  void copy_window(std::span<const CopyPiece> window, Buffer& buffer) {
    const ByteSource& source = *jobs_[window.front().job].source;
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
      error.in_file(source.name()).in_tensor(jobs_[run.front().job].name);
      throw;
    }
    done_.fetch_add(bytes, std::memory_order_relaxed);
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
    if (source.descriptor() >= 0 && copies_slowly(address_of(piece.out), piece.offset, piece.length)) {
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

  const std::span<const CopyJob> jobs_;
  const CopyPlan& plan_;
  const bool fresh_;
  FreshPages fresh_pages_;
  FileOps& ops_;
  std::map<const ByteSource*, DirectFile> direct_;  // not changed once threads run
  std::atomic<std::size_t> next_{0};
  std::atomic<std::uint64_t> done_{0};
};

}  // namespace

void parallel_copy(std::span<const CopyJob> jobs, const CopyOptions& options, const Progress& progress) {
  const CopyPlan plan = plan_copy(jobs);
  const auto report = [&](std::uint64_t done, std::string_view name) {
    if (progress && !progress(done, plan.total_bytes, name))
      throw Error(ErrorCode::kCancelled, "reading was cancelled");
  };
  if (plan.window_count() == 0) {
    report(0, {});
    return;
  }
  Copy copy(jobs, plan, options);
  // The last report is made below, when everything is done.
  const auto watch = [&] {
    if (copy.done() < plan.total_bytes) report(copy.done(), copy.current());
  };
  if (plan.total_bytes < kSmallRequest || options.threads == 1) {
    copy.work_alone(watch);
  } else {
    run_parallel(
        copy.threads(options.threads), [&](unsigned, const StopFlag& stop) { copy.work(stop); },
        progress ? std::function<void()>(watch) : nullptr);
  }
  report(plan.total_bytes, jobs[plan.pieces.back().job].name);
}

}  // namespace weightstore::io
