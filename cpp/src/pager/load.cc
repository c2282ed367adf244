#include "pager/load.h"

#include <algorithm>
#include <utility>

#include "io/checked_io.h"
#include "pager/buffer_pool.h"

namespace weightstore::pager {
namespace {

// A chunk has one to two times this size: small enough that threads can share a tensor, large enough to keep a device
// busy.
constexpr std::uint64_t kChunkBytes = io::kChunkBytes;
// Direct reads have smaller chunks, so that several threads keep several requests in the device's queue.
constexpr std::uint64_t kDirectChunkBytes = 1 << 20;

constexpr std::uint64_t kNumberAlignment = 8;  // of the widest element
constexpr std::uint64_t kMemoryAlignment = 64;

std::uint64_t round_up(std::uint64_t n, std::uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

}  // namespace

LoadPlan LoadPlan::make(const ByteSource& source, io::DirectFile* direct, std::uint64_t offset, std::uint64_t size) {
  LoadPlan plan{&source, nullptr, offset, size, 0};
  if (source.descriptor() < 0 || size < BufferPool::kPooled) return plan;
  const std::uint64_t in_page = offset % io::kDirectAlignment;
  if (in_page % kNumberAlignment == 0) {
    plan.padding = in_page;
    plan.direct = direct;
  } else {
    // Numbers must be aligned in memory, even where they are not aligned in the file. The extra kMemoryAlignment avoids
    // the distances between source and target at which is_slow_copy() is true.
    plan.padding = round_up(in_page, kMemoryAlignment) + kMemoryAlignment;
  }
  return plan;
}

std::uint64_t LoadPlan::buffer_bytes() const {
  const std::uint64_t bytes = padding + size;
  return bytes < BufferPool::kPooled ? bytes : round_up(bytes, io::kDirectAlignment);
}

void Load::begin_again(std::uint32_t tensor) {
  tensor_ = tensor;
  prefetch_ = false;
  is_running = is_reserved = is_done = has_result = false;
  waiters = 0;
  next_.store(0, std::memory_order_relaxed);
  started_.store(false, std::memory_order_relaxed);
}

void Load::start(const LoadPlan& plan, std::byte* memory) {
  plan_ = plan;
  memory_ = memory;
  const std::uint64_t length = plan.padding + plan.size;
  const std::uint64_t usual = plan.direct != nullptr ? kDirectChunkBytes : kChunkBytes;
  const std::uint64_t wanted = std::max<std::uint64_t>(1, length / usual);
  chunk_bytes_ = std::max(round_up((length + wanted - 1) / wanted, io::kDirectAlignment), io::kDirectAlignment);
  chunk_count_ = std::max<std::uint64_t>(1, (length + chunk_bytes_ - 1) / chunk_bytes_);
  remaining_.store(chunk_count_, std::memory_order_relaxed);
  started_.store(true, std::memory_order_release);
}

bool Load::has_chunks() const {
  return started_.load(std::memory_order_acquire) && next_.load(std::memory_order_relaxed) < chunk_count_;
}

void Load::read(const std::function<bool()>& pause) {
  if (!started_.load(std::memory_order_acquire)) return;
  while (!pause || !pause()) {
    const std::uint64_t chunk = next_.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= chunk_count_) return;
    try {
      if (!failed_.load(std::memory_order_relaxed)) read_chunk(chunk);
    } catch (...) {
      fail(std::current_exception());
    }
    if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) remaining_.notify_all();
  }
}

void Load::fail(std::exception_ptr error) {
  if (!failed_.exchange(true)) error_ = std::move(error);
}

std::uint64_t Load::bytes_begun() const {
  if (!started_.load(std::memory_order_acquire)) return 0;
  return std::min(next_.load(std::memory_order_relaxed) * chunk_bytes_, plan_.size);
}

void Load::read_chunk(std::uint64_t chunk) const {
  // Positions in the buffer. With direct reads, position 0 corresponds to the beginning of a page of the file.
  const std::uint64_t begin = chunk * chunk_bytes_;
  const std::uint64_t end = std::min(begin + chunk_bytes_, plan_.padding + plan_.size);
  if (plan_.direct != nullptr && plan_.direct->usable() &&
      plan_.direct->read(plan_.offset - plan_.padding + begin, end - begin, memory_ + begin)) {
    return;
  }
  const std::uint64_t first = std::max(begin, plan_.padding);
  if (first >= end) return;
  plan_.source->read_at(plan_.offset + (first - plan_.padding), {memory_ + first, end - first});
}

void Load::finish() {
  for (std::uint64_t left = remaining_.load(std::memory_order_acquire); left != 0;
       left = remaining_.load(std::memory_order_acquire)) {
    remaining_.wait(left, std::memory_order_acquire);
  }
  if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace weightstore::pager
