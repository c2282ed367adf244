#include "io/file_source.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <mutex>
#include <utility>

#include "base/checked.h"
#include "io/checked_io.h"

namespace weightstore::io {
namespace {

constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, too young for some C libraries' headers

class Mapping {
 public:
  Mapping(void* address, std::size_t length, FileOps& ops) : ops_(ops), address_(address), length_(length) {}
  ~Mapping() { ops_.munmap(address_, length_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(address_); }

 private:
  FileOps& ops_;
  void* address_;
  std::size_t length_;
};

// One mapping of a whole file, made when first asked for and shared by all views.
class LazyMapping {
 public:
  LazyMapping(int protection, int flags) : protection_(protection), flags_(flags) {}

  // Null when there is none yet.
  std::shared_ptr<Mapping> existing() noexcept {
    const std::lock_guard lock(mutex_);
    return mapping_;
  }

  // Null when the system refuses.
  std::shared_ptr<Mapping> get(int fd, std::uint64_t size, FileOps& ops) {
    const std::lock_guard lock(mutex_);
    if (mapping_ == nullptr) {
      void* address = ops.mmap(size, protection_, flags_, fd, 0);
      if (address == MAP_FAILED) return nullptr;
      mapping_ = std::make_shared<Mapping>(address, size, ops);
    }
    return mapping_;
  }

 private:
  const int protection_;
  const int flags_;
  std::mutex mutex_;
  std::shared_ptr<Mapping> mapping_;
};

class FileSource final : public ByteSource {
 public:
  FileSource(int fd, std::uint64_t size, std::string path, bool map, FileOps& ops)
      : ops_(ops), fd_(fd), size_(size), path_(std::move(path)), map_(map) {}
  ~FileSource() override { close_quietly(ops_, fd_); }

  std::uint64_t size() const override { return size_; }
  int descriptor() const override { return fd_; }
  std::string name() const override { return path_; }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    const auto end = checked_add(offset, out.size());
    if (!end || *end > size_) throw missing(offset, out.size(), offset < size_ ? size_ - offset : 0);
    const std::size_t n = read_up_to(ops_, fd_, out, offset, path_);
    if (n < out.size()) throw missing(offset, out.size(), n);
  }

  std::optional<SharedBytes> view(std::uint64_t offset, std::uint64_t length) const override {
    const auto mapping = mapped(shared_, offset, length);
    if (!mapping) return std::nullopt;
    if (*mapping == nullptr) return SharedBytes{};
    return SharedBytes{{(*mapping)->data() + offset, length}, *mapping};
  }

  void populate(std::uint64_t offset, std::uint64_t length) const override {
    struct stat status;
    if (retry_interrupted([&] { return ops_.fstat(fd_, &status); }) != 0) {
      throw io_error(errno, "cannot get the size", path_);
    }
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (size < offset + length) throw missing(offset, length, offset < size ? size - offset : 0);
    const auto mapping = mapped(shared_, offset, length);
    if (!mapping || *mapping == nullptr) return;
    const std::uint64_t begin = offset / kDirectAlignment * kDirectAlignment;
    std::byte* first = (*mapping)->data() + begin;
    const int failed = retry_interrupted([&] { return ops_.madvise(first, offset + length - begin, kPopulateRead); });
    // Kernels before 5.14 do not know this advice; the pages come in when they are touched.
    if (failed != 0 && errno != EINVAL) throw io_error(errno, "cannot read", path_).at_offset(offset);
  }

  void discard(std::uint64_t offset, std::uint64_t length) const noexcept override {
    const std::uint64_t begin = (offset + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
    const std::uint64_t end = (offset + length) / kDirectAlignment * kDirectAlignment;
    if (begin >= end) return;
    // Of a shared mapping of a file this drops page table entries, never data.
    if (const auto mapping = shared_.existing()) ops_.madvise(mapping->data() + begin, end - begin, MADV_DONTNEED);
  }

  std::optional<SharedMutableBytes> private_view(std::uint64_t offset, std::uint64_t length) const override {
    const auto mapping = mapped(private_, offset, length);
    if (!mapping) return std::nullopt;
    if (*mapping == nullptr) return SharedMutableBytes{};
    return SharedMutableBytes{{(*mapping)->data() + offset, length}, *mapping};
  }

 private:
  // nullopt: this file cannot be mapped; null: the range is empty and needs no mapping.
  std::optional<std::shared_ptr<Mapping>> mapped(LazyMapping& mapping, std::uint64_t offset,
                                                 std::uint64_t length) const {
    const auto end = checked_add(offset, length);
    if (!end || *end > size_) throw missing(offset, length, offset < size_ ? size_ - offset : 0);
    if (!map_) return std::nullopt;
    if (length == 0) return std::shared_ptr<Mapping>();
    auto result = mapping.get(fd_, size_, ops_);
    if (result == nullptr) return std::nullopt;
    return result;
  }

  Error missing(std::uint64_t offset, std::uint64_t needed, std::uint64_t available) const {
    Error error(ErrorCode::kIo, "needed " + std::to_string(needed) + " bytes, but only " + std::to_string(available) +
                                    " are there; was the file (" + std::to_string(size_) +
                                    " bytes when opened) cut short?");
    error.in_file(path_).at_offset(offset);
    return error;
  }

  FileOps& ops_;
  const int fd_;
  const std::uint64_t size_;
  const std::string path_;
  const bool map_;
  mutable LazyMapping shared_{PROT_READ, MAP_SHARED};
  mutable LazyMapping private_{PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE};
};

std::string_view advice_for(mode_t mode) {
  if (S_ISDIR(mode)) return "give the path of a file inside it";
  if (S_ISFIFO(mode) || S_ISSOCK(mode)) return "save what comes out of it to a file first";
  return "only regular files can be read";
}

}  // namespace

std::shared_ptr<const ByteSource> open_file(const std::filesystem::path& path, bool map, FileOps& ops) {
  const std::string name = path.string();
  // O_NONBLOCK: opening a FIFO for reading would otherwise wait for a writer.
  const int fd = retry_interrupted([&] { return ops.open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0); });
  if (fd < 0) {
    // A socket cannot be opened at all, and ENXIO does not say why.
    if (errno == ENXIO) throw io_error(errno, "this is a socket or a device without a driver; cannot open", name);
    throw io_error(errno, "cannot open", name);
  }
  return adopt_file(fd, name, map, ops);
}

std::shared_ptr<const ByteSource> adopt_file(int fd, const std::string& name, bool map, FileOps& ops) {
  struct stat status;
  if (retry_interrupted([&] { return ops.fstat(fd, &status); }) != 0) {
    const int error = errno;
    close_quietly(ops, fd);
    throw io_error(error, "cannot get the size", name);
  }
  if (!S_ISREG(status.st_mode)) {
    close_quietly(ops, fd);
    const int error = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    throw Error(ErrorCode::kIo,
                "this is " + std::string(kind_of_file(status.st_mode)) + "; " + std::string(advice_for(status.st_mode)))
        .in_file(name)
        .equivalent_errno(error);
  }
  try {
    return std::make_shared<FileSource>(fd, static_cast<std::uint64_t>(status.st_size), name, map, ops);
  } catch (...) {
    close_quietly(ops, fd);
    throw;
  }
}

}  // namespace weightstore::io
