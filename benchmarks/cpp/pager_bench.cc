// What a pager costs when the tensor is there, by slot and by name, for models from small to very many experts; and how
// near a miss is to a plain read into memory that is ready.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "benches.h"
#include "weightstore/pager.h"

namespace benches {

using namespace weightstore;

namespace {

void bench_hits(ankerl::nanobench::Bench& bench, std::size_t count) {
  static const std::vector<std::byte> bytes(64);
  std::vector<NamedEntry> entries;
  for (std::size_t i = 0; i < count; ++i) {
    entries.push_back(
        {"model.layers." + std::to_string(i / 9) + ".part." + std::to_string(i % 9) + ".weight", {0, 64}});
  }
  Pager pager(memory_source(bytes), entries);
  for (std::size_t i = 0; i < count; ++i) pager.acquire(i);
  // As a model is run, and in no order that a processor could guess: then what is not in its cache costs what memory
  // costs, the names of this benchmark included.
  for (const std::size_t stride : {std::size_t{1}, std::size_t{7'919}}) {
    std::size_t i = 0;
    const auto next = [&] { return i = (i + stride) % count; };
    const std::string among = ", " + std::to_string(count) + " tensors" + (stride == 1 ? " in order" : " out of order");
    bench.run("acquire and release by slot" + among,
              [&] { ankerl::nanobench::doNotOptimizeAway(pager.acquire(next()).bytes().data()); });
    bench.run("acquire and release by name" + among,
              [&] { ankerl::nanobench::doNotOptimizeAway(pager.acquire(entries[next()].name).bytes().data()); });
  }
}

// A file of its own, in the directory for temporary files, gone at the end.
class ScratchFile {
 public:
  explicit ScratchFile(std::size_t size) : path_(std::filesystem::temp_directory_path() / "weightstore-pager-bench") {
    std::ofstream file(path_, std::ios::binary);
    std::vector<char> block(1 << 20);
    for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<char>(i * 2654435761u >> 13);
    for (std::size_t done = 0; done < size; done += block.size()) file.write(block.data(), 1 << 20);
  }
  ~ScratchFile() { std::filesystem::remove(path_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A file descriptor as a source: what the benchmark needs of the library's own.
class FdSource final : public ByteSource {
 public:
  FdSource(int fd, std::uint64_t size) : fd_(fd), size_(size) {}
  std::uint64_t size() const override { return size_; }
  int descriptor() const override { return fd_; }
  std::string name() const override { return "<benchmark>"; }
  void read_at(std::uint64_t offset, MutableBytes out) const override {
    if (::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset)) != static_cast<ssize_t>(out.size())) {
      throw Error(ErrorCode::kIo, "short read");
    }
  }

 private:
  int fd_;
  std::uint64_t size_;
};

// `size` bytes at `offset` into ready memory, in chunks taken by so many threads that wait between calls. As many
// buffers as the pager goes through, on huge pages like its own.
class RawReader {
 public:
  RawReader(int fd, std::size_t size, std::size_t chunk, unsigned threads)
      : fd_(fd), size_(size), chunk_(chunk), threads_(threads) {
    for (std::byte*& buffer : buffers_) {
      void* memory = nullptr;
      if (::posix_memalign(&memory, 2 << 20, size) != 0) std::abort();
      ::madvise(memory, size, MADV_HUGEPAGE);
      std::memset(memory, 1, size);
      buffer = static_cast<std::byte*>(memory);
    }
    for (unsigned t = 1; t < threads; ++t) helpers_.emplace_back([this] { help(); });
  }
  ~RawReader() {
    stop_ = true;
    ++round_;
    round_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
    for (std::byte* buffer : buffers_) std::free(buffer);
  }
  RawReader(const RawReader&) = delete;
  RawReader& operator=(const RawReader&) = delete;

  void read(std::uint64_t offset) {
    offset_ = offset;
    memory_ = buffers_[++reads_ % std::size(buffers_)];
    next_ = 0;
    busy_ = threads_ - 1;
    ++round_;
    round_.notify_all();
    take();
    while (busy_ != 0) busy_.wait(busy_);
  }

 private:
  void help() {
    for (unsigned seen = 0;;) {
      round_.wait(seen);
      seen = round_;
      if (stop_) return;
      take();
      if (--busy_ == 0) busy_.notify_all();
    }
  }
  void take() {
    for (std::size_t at = next_.fetch_add(chunk_); at < size_; at = next_.fetch_add(chunk_)) {
      const std::size_t count = std::min(chunk_, size_ - at);
      if (::pread(fd_, memory_ + at, count, static_cast<off_t>(offset_ + at)) != static_cast<ssize_t>(count))
        std::abort();
    }
  }

  const int fd_;
  const std::size_t size_;
  const std::size_t chunk_;
  const unsigned threads_;
  std::byte* buffers_[3] = {};
  std::size_t reads_ = 0;
  std::byte* memory_ = nullptr;
  std::uint64_t offset_ = 0;
  std::atomic<std::size_t> next_{0};
  std::atomic<unsigned> busy_{0};
  std::atomic<unsigned> round_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> helpers_;
};

void bench_misses(ankerl::nanobench::Bench& bench, bool direct) {
  constexpr std::size_t kFile = std::size_t{512} << 20;
  const ScratchFile file(kFile);
  const int fd = ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
  const int raw_fd = direct ? ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT) : fd;
  if (fd < 0 || raw_fd < 0) return;
  ::fsync(fd);
  if (direct) ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  for (const std::size_t size : {std::size_t{4} << 20, std::size_t{16} << 20, std::size_t{64} << 20}) {
    std::vector<NamedEntry> entries;
    for (std::size_t at = 0; at + size <= kFile; at += size) entries.push_back({std::to_string(at), {at, size}});
    const std::string what = (direct ? "O_DIRECT, " : "page cache, ") + std::to_string(size >> 20) + " MiB";
    bench.batch(size).unit("byte").minEpochIterations(2 * entries.size());
    std::size_t i = 0;
    const auto next = [&] { return i = (i + 1) % entries.size(); };
    {
      PagerOptions options;
      options.budget = 2 * size;
      options.direct = direct ? DirectReads::kAlways : DirectReads::kNever;
      Pager pager(std::make_shared<FdSource>(fd, kFile), entries, options);
      bench.run("miss, " + what, [&] { ankerl::nanobench::doNotOptimizeAway(pager.acquire(next()).bytes().data()); });
    }
    for (const unsigned threads : {1u, 2u, 3u}) {
      RawReader raw(raw_fd, size, direct ? 1 << 20 : 4 << 20, threads);
      bench.run("  pread into ready memory, " + std::to_string(threads) + " threads, " + what,
                [&] { raw.read(entries[next()].entry.offset); });
    }
  }
  if (direct) ::close(raw_fd);
  ::close(fd);
}

}  // namespace

void bench_pager_hits(ankerl::nanobench::Bench& bench) {
  bench.title("a pager, hit").unit("acquire").batch(1).epochs(11).minEpochIterations(100'000);
  for (const std::size_t count : {128, 723, 4'096, 46'000}) bench_hits(bench, count);
  bench.minEpochIterations(1);
}

void bench_pager_misses(ankerl::nanobench::Bench& bench) {
  bench.title("a pager, miss").epochs(5);
  bench_misses(bench, false);
  bench_misses(bench, true);
  bench.batch(1).epochs(11).minEpochIterations(1);
}

}  // namespace benches
