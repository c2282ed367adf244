// What the machine can do: the I/O of a load or a save with no format around it.
//
// A model is a list of extents, the file their concatenation. Every function returns 0 or an errno; memory that a
// function allocates for a result is never freed, because each measurement has a process of its own.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::uint64_t kBlock = 4u << 20;
constexpr std::uint64_t kHugePage = 2u << 20;
constexpr std::uint64_t kDirectUnit = 4096;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

// Anonymous memory on 2 MiB pages where the kernel has them.
char* allocate_huge(std::uint64_t size) {
  const std::uint64_t length = round_up(size, kHugePage) + kHugePage;
  void* raw = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* aligned = reinterpret_cast<char*>(round_up(reinterpret_cast<std::uintptr_t>(raw), kHugePage));
  madvise(aligned, round_up(size, kHugePage), MADV_HUGEPAGE);
  return aligned;
}

class Descriptor {
 public:
  Descriptor(const char* path, int flags) : fd_(open(path, flags | O_CLOEXEC, 0644)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_;
};

int sync_directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  const Descriptor directory(slash == std::string::npos ? "." : path.substr(0, slash).c_str(), O_RDONLY);
  return directory.ok() && fsync(directory.get()) == 0 ? 0 : errno;
}

// Calls work(begin, length) for every block of [0, total) on `threads` threads until one returns an errno.
template <typename MakeWork>
int for_blocks(std::uint64_t total, std::uint64_t block, unsigned threads, MakeWork make_work) {
  std::atomic<std::uint64_t> next{0};
  std::atomic<int> error{0};
  auto loop = [&] {
    auto work = make_work();
    for (;;) {
      const std::uint64_t begin = next.fetch_add(block);
      if (begin >= total || error.load() != 0) return;
      if (const int failed = work(begin, std::min(block, total - begin))) error.store(failed);
    }
  };
  std::vector<std::thread> helpers;
  for (unsigned i = 1; i < threads; ++i) helpers.emplace_back(loop);
  loop();
  for (auto& helper : helpers) helper.join();
  return error.load();
}

// `room` may exceed `length`: O_DIRECT asks for whole units where the file ends inside one.
int read_all(int fd, char* out, std::uint64_t length, std::uint64_t room, std::uint64_t offset) {
  for (std::uint64_t done = 0; done < length;) {
    const ssize_t got = pread(fd, out + done, room - done, static_cast<off_t>(offset + done));
    if (got <= 0) return got < 0 ? errno : ENODATA;
    done += static_cast<std::uint64_t>(got);
  }
  return 0;
}

int write_all(int fd, const char* data, std::uint64_t length, std::uint64_t offset) {
  while (length > 0) {
    const ssize_t put = pwrite(fd, data, length, static_cast<off_t>(offset));
    if (put < 0) return errno;
    data += put, offset += static_cast<std::uint64_t>(put), length -= static_cast<std::uint64_t>(put);
  }
  return 0;
}

}  // namespace

extern "C" {

struct Extent {
  char* data;
  std::uint64_t size;
};

}  // extern "C"

namespace {

// The concatenation of extents.
class Stream {
 public:
  Stream(const Extent* extents, std::uint64_t count) : extents_(extents), starts_(count + 1) {
    for (std::uint64_t i = 0; i < count; ++i) starts_[i + 1] = starts_[i] + extents[i].size;
  }
  std::uint64_t size() const { return starts_.back(); }

  // Calls visit(pointer, length, position in the range) for each piece of [begin, begin + length).
  template <typename Visit>
  void pieces(std::uint64_t begin, std::uint64_t length, Visit visit) const {
    auto i = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin()) - 1;
    for (std::uint64_t done = 0; done < length; ++i) {
      const std::uint64_t inside = begin + done - starts_[i];
      const std::uint64_t piece = std::min(extents_[i].size - inside, length - done);
      if (piece > 0) visit(extents_[i].data + inside, piece, done);
      done += piece;
    }
  }

 private:
  const Extent* extents_;
  std::vector<std::uint64_t> starts_;
};

}  // namespace

extern "C" {

// Reads one byte of every page.
std::uint64_t limit_touch(const Extent* extents, std::uint64_t count) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const volatile char* data = extents[i].data;
    for (std::uint64_t at = 0; at < extents[i].size; at += 4096) sum += static_cast<unsigned char>(data[at]);
  }
  return sum;
}

// Copies extents into `out` on `threads` threads.
int limit_memcpy(const Extent* extents, std::uint64_t count, char* out, unsigned threads) {
  const Stream stream(extents, count);
  return for_blocks(stream.size(), kBlock, threads, [&] {
    return [&](std::uint64_t begin, std::uint64_t length) {
      stream.pieces(begin, length, [&](const char* data, std::uint64_t size, std::uint64_t at) {
        std::memcpy(out + begin + at, data, size);
      });
      return 0;
    };
  });
}

// Preallocates, then writes 4 MiB at a time from the extents' own memory on one thread.
int limit_write_buffered(const char* path, const Extent* extents, std::uint64_t count, int durable) {
  const Stream stream(extents, count);
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.ok()) return errno;
  if (fallocate(file.get(), 0, 0, static_cast<off_t>(stream.size())) != 0) return errno;
  int error = for_blocks(stream.size(), kBlock, 1, [&] {
    return [&](std::uint64_t begin, std::uint64_t length) {
      int failed = 0;
      stream.pieces(begin, length, [&](const char* data, std::uint64_t size, std::uint64_t at) {
        if (failed == 0) failed = write_all(file.get(), data, size, begin + at);
      });
      return failed;
    };
  });
  if (error == 0 && durable != 0) error = fsync(file.get()) == 0 ? sync_directory_of(path) : errno;
  return error;
}

// Preallocates, then writes around the page cache from aligned buffers, one a thread. Always synced.
int limit_write_direct(const char* path, const Extent* extents, std::uint64_t count, std::uint64_t block,
                       unsigned threads) {
  const Stream stream(extents, count);
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT);
  if (!file.ok()) return errno;
  if (fallocate(file.get(), 0, 0, static_cast<off_t>(round_up(stream.size(), kDirectUnit))) != 0) return errno;
  const int error = for_blocks(stream.size(), block, threads, [&] {
    return [&, buffer = allocate_huge(block)](std::uint64_t begin, std::uint64_t length) {
      if (buffer == nullptr) return ENOMEM;
      stream.pieces(begin, length, [&](const char* data, std::uint64_t size, std::uint64_t at) {
        std::memcpy(buffer + at, data, size);
      });
      const std::uint64_t padded = round_up(length, kDirectUnit);
      std::memset(buffer + length, 0, padded - length);
      return write_all(file.get(), buffer, padded, begin);
    };
  });
  if (error != 0) return error;
  if (ftruncate(file.get(), static_cast<off_t>(stream.size())) != 0 || fsync(file.get()) != 0) return errno;
  return sync_directory_of(path);
}

// Reads a file into extents that exist, 4 MiB at a time.
int limit_read_ready(const char* path, std::uint64_t offset, const Extent* extents, std::uint64_t count,
                     unsigned threads) {
  const Stream stream(extents, count);
  const Descriptor file(path, O_RDONLY);
  if (!file.ok()) return errno;
  return for_blocks(stream.size(), kBlock, threads, [&] {
    return [&](std::uint64_t begin, std::uint64_t length) {
      int failed = 0;
      stream.pieces(begin, length, [&](char* out, std::uint64_t size, std::uint64_t at) {
        if (failed == 0) failed = read_all(file.get(), out, size, size, offset + begin + at);
      });
      return failed;
    };
  });
}

// Reads a whole file through the page cache into fresh memory on 2 MiB pages.
int limit_read_fresh(const char* path, std::uint64_t size, unsigned threads, char** out) {
  const Descriptor file(path, O_RDONLY);
  if (!file.ok()) return errno;
  char* memory = *out = allocate_huge(size);
  if (memory == nullptr) return ENOMEM;
  return for_blocks(size, kBlock, threads, [&] {
    return [&](std::uint64_t begin, std::uint64_t length) {
      return read_all(file.get(), memory + begin, length, length, begin);
    };
  });
}

// Reads a whole file around the page cache into one ready buffer a thread, and copies that into fresh memory on 2 MiB
// pages.
int limit_read_ring(const char* path, std::uint64_t size, unsigned threads, char** out) {
  const Descriptor file(path, O_RDONLY | O_DIRECT);
  if (!file.ok()) return errno;
  char* memory = *out = allocate_huge(size);
  if (memory == nullptr) return ENOMEM;
  return for_blocks(size, kBlock, threads, [&] {
    char* buffer = allocate_huge(kBlock);
    if (buffer != nullptr) std::memset(buffer, 0, kBlock);
    return [&, buffer, memory](std::uint64_t begin, std::uint64_t length) {
      if (buffer == nullptr) return ENOMEM;
      const int failed = read_all(file.get(), buffer, length, round_up(length, kDirectUnit), begin);
      std::memcpy(memory + begin, buffer, length);
      return failed;
    };
  });
}

// Maps a whole file; with `populate` the kernel fills the page table in one call.
int limit_map(const char* path, std::uint64_t size, int populate, char** out) {
  const Descriptor file(path, O_RDONLY);
  if (!file.ok()) return errno;
  void* memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return errno;
  *out = static_cast<char*>(memory);
#ifdef MADV_POPULATE_READ
  if (populate != 0 && madvise(memory, size, MADV_POPULATE_READ) != 0) return errno;
#else
  if (populate != 0) return ENOSYS;
#endif
  return 0;
}

}  // extern "C"
