#pragma once

// Sources that count, fail, wait and run short; and a model of tensors to page.

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/pager.h"

namespace pager_sources {

using namespace weightstore;

// Memory that is only ever copied, with a count of the reads. `before_read` runs inside each, and may throw or wait.
class CountingSource final : public ByteSource {
 public:
  explicit CountingSource(std::string bytes) : bytes_(std::move(bytes)) {}

  std::function<void(std::uint64_t offset, std::size_t size)> before_read;

  std::uint64_t size() const override { return bytes_.size(); }
  std::string name() const override { return "<counting>"; }
  std::uint64_t reads() const { return reads_.load(); }
  std::string_view text(std::uint64_t offset, std::uint64_t size) const {
    return std::string_view(bytes_).substr(offset, size);
  }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    ++reads_;
    if (before_read) before_read(offset, out.size());
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) throw Error(ErrorCode::kIo, "beyond the end");
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }

 private:
  std::string bytes_;
  mutable std::atomic<std::uint64_t> reads_{0};
};

// `count` tensors of `size` bytes, one after the other, named "0", "1", ...; byte i of each is i mod 256, as the seed's
// tests have it, but the first eight, which say which tensor it is. The source is one byte longer than the last tensor.
inline std::string data_of(std::size_t tensor, std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i % 256);
  for (std::size_t i = 0; i < 8 && i < size; ++i) bytes[i] = static_cast<char>(tensor >> (8 * i));
  return bytes;
}

inline std::string contents(std::size_t count, std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += data_of(i, size);
  return bytes + '\x7f';
}

inline std::vector<NamedEntry> entries(std::size_t count, std::size_t size) {
  std::vector<NamedEntry> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back({std::to_string(i), {i * size, size}});
  return result;
}

struct Model {
  std::shared_ptr<CountingSource> source;
  std::unique_ptr<Pager> pager;

  Model(std::size_t count, std::size_t size, PagerOptions options)
      : source(std::make_shared<CountingSource>(contents(count, size))),
        pager(std::make_unique<Pager>(source, entries(count, size), std::move(options))) {}

  std::vector<std::size_t> residents() const {
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i < pager->table().size(); ++i) {
      if (pager->is_resident(i)) result.push_back(i);
    }
    return result;
  }
};

inline PagerOptions with_budget(std::uint64_t budget, std::vector<std::string> pinned = {}) {
  PagerOptions options;
  options.budget = budget;
  options.pinned = std::move(pinned);
  return options;
}

// Opens once; those who wait before that stay.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void wait_for(unsigned arrivals) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= arrivals; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  unsigned arrived_ = 0;
};

using Slots = std::vector<std::size_t>;
inline std::string text_of(const ResidentTensor& tensor) { return test_files::as_text(tensor.bytes()); }

}  // namespace pager_sources
