#include <algorithm>
#include <chrono>

#include "io/checked_io.h"
#include "io/sinks/file_sink.h"

// The page cache usually takes bytes at the speed of memory. Sometimes it does not: a virtual machine may have to ask
// its host for every page, and a process that has made too many pages dirty is held to the speed of the device. Then
// writing around it is faster, several times over. Which it is shows only by trying: when a window of chunks was slow,
// a few chunks are written directly, and whichever way was faster has the rest of the file.

namespace weightstore::io {
namespace {

constexpr std::uint64_t kWindowBytes = 8 * kChunkBytes;
// Twice over, the first time for the ring's own memory to be touched.
constexpr std::uint64_t kTrialBytes = 8 * kChunkBytes;
// What is left must be worth the trial, which on a slow device takes a tenth of a second.
constexpr std::uint64_t kWorthTrying = 256 << 20;
constexpr double kSlow = 2e9;  // bytes a second

class AdaptiveSink final : public FileSink {
 public:
  AdaptiveSink(FileRange range, FileOps& ops)
      : ops_(ops),
        range_(std::move(range)),
        sink_(buffered_sink(range_, ops)),
        position_(range_.begin),
        phase_begin_(range_.begin),
        phase_start_(ops.now()) {}

  MutableBytes space() override { return sink_->space(); }

  void advance(std::size_t count) override {
    sink_->advance(count);
    moved(count);
  }

  void append(ConstBytes bytes) override {
    while (!bytes.empty()) {
      const ConstBytes part = bytes.first(std::min<std::size_t>(bytes.size(), kChunkBytes - position_ % kChunkBytes));
      sink_->append(part);
      moved(part.size());
      bytes = bytes.subspan(part.size());
    }
  }

  bool holds_memory() const override { return sink_->holds_memory(); }
  void flush() override { sink_->flush(); }
  void finish() override { sink_->finish(); }

 private:
  enum class Phase : std::uint8_t { kBuffered, kWarmUp, kTrial, kSettled };

  void moved(std::size_t count) {
    position_ += count;
    if (phase_ == Phase::kSettled || position_ % kChunkBytes != 0) return;
    const std::uint64_t bytes = position_ - phase_begin_;
    switch (phase_) {
      case Phase::kBuffered:
        if (bytes == kWindowBytes) end_window();
        break;
      case Phase::kWarmUp:
        if (bytes == kTrialBytes) begin(Phase::kTrial);
        break;
      case Phase::kTrial:
        if (bytes == kTrialBytes) end_trial();
        break;
      case Phase::kSettled:
        break;
    }
  }

  void begin(Phase phase) {
    sink_->flush();
    phase_ = phase;
    phase_begin_ = position_;
    phase_start_ = ops_.now();
  }

  // Bytes a second since the phase began.
  double rate() const {
    const std::chrono::duration<double> seconds = ops_.now() - phase_start_;
    return static_cast<double>(position_ - phase_begin_) / seconds.count();
  }

  void end_window() {
    buffered_rate_ = rate();
    if (range_.file_size - position_ < kWorthTrying) {
      phase_ = Phase::kSettled;
    } else if (buffered_rate_ >= kSlow) {
      begin(Phase::kBuffered);
    } else if (auto direct = direct_sink(from_here(), ops_)) {
      sink_ = std::move(direct);
      begin(Phase::kWarmUp);
    } else {
      phase_ = Phase::kSettled;
    }
  }

  void end_trial() {
    sink_->flush();
    if (rate() < buffered_rate_) sink_ = buffered_sink(from_here(), ops_);
    phase_ = Phase::kSettled;
  }

  FileRange from_here() const { return {range_.fd, position_, range_.file_size, range_.path}; }

  FileOps& ops_;
  const FileRange range_;
  std::unique_ptr<FileSink> sink_;
  std::uint64_t position_;
  Phase phase_ = Phase::kBuffered;
  std::uint64_t phase_begin_;
  std::chrono::steady_clock::time_point phase_start_;
  double buffered_rate_ = 0;
};

}  // namespace

std::unique_ptr<FileSink> adaptive_sink(FileRange range, FileOps& ops) {
  return std::make_unique<AdaptiveSink>(std::move(range), ops);
}

}  // namespace weightstore::io
