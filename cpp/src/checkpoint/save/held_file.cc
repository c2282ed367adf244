#include "checkpoint/save/held_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <set>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>

#include "io/atomic_file.h"
#include "io/checked_io.h"
#include "io/liveness.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

constexpr int kLockTries = 10;
constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kBeatDigits = 16;
constexpr auto kSilence = std::chrono::seconds(2);  // an owner without a heartbeat for this long is dead

std::string beat_digits(std::uint64_t n) {
  std::array<char, kBeatDigits + 1> digits;
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(n));
  return digits.data();
}

// Descriptors that a forked child must close: open files that are locked, or may be. Files are opened and closed under
// the mutex, which a fork takes too: a child never has such a file that is not in the set. The set is never destroyed:
// threads may still hold files at exit.
class Descriptors {
 public:
  static Descriptors& all() {
    static Descriptors& descriptors = *new Descriptors;
    return descriptors;
  }
  // As open(2), again after a signal.
  int open(const std::string& path, int flags, io::FileOps& ops) {
    const std::lock_guard lock(mutex_);
    const int fd = io::retry_interrupted([&] { return ops.open(path.c_str(), flags, 0666); });
    const int error = errno;
    if (fd >= 0) fds_.insert(fd);
    errno = error;
    return fd;
  }
  void close(int fd, io::FileOps& ops) {
    const std::lock_guard lock(mutex_);
    fds_.erase(fd);
    io::close_quietly(ops, fd);
  }

 private:
  Descriptors() {
    ::pthread_atfork([] { all().mutex_.lock(); }, [] { all().mutex_.unlock(); },
                     [] {
                       // close(2), unlike unlock, leaves the lock with the parent.
                       for (const int fd : all().fds_) ::close(fd);
                       all().fds_.clear();
                       all().mutex_.unlock();
                     });
  }

  std::mutex mutex_;
  std::set<int> fds_;
};

bool same_file(int fd, const std::string& path, io::FileOps& ops) {
  struct stat opened;
  struct stat named;
  return ops.fstat(fd, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

int try_lock(int fd, int operation, io::FileOps& ops) {
  return io::retry_interrupted([&] { return ops.flock(fd, operation | LOCK_NB); });
}

// A file's text and its last heartbeat. Both are empty for a file without a heartbeat.
HeldText read_held(int fd, const std::string& path, io::FileOps& ops) {
  std::array<char, kMaxText + kBeatDigits> bytes;
  const std::size_t length = io::read_up_to(ops, fd, std::as_writable_bytes(std::span(bytes)), 0, path);
  if (length < kBeatDigits) return {};
  const std::string_view all(bytes.data(), length);
  return {std::string(all.substr(0, length - kBeatDigits)), std::string(all.substr(length - kBeatDigits)), false};
}

Error held_by_another(const std::filesystem::path& path) {
  return Error(ErrorCode::kConflict, "another save into this directory is running; let it end first")
      .in_file(path.parent_path().native())
      .with_errno(EWOULDBLOCK);
}

}  // namespace

class HeldFile::Owner {
 public:
  // Takes a descriptor that Descriptors::open() gave.
  Owner(std::string path, int fd, io::FileOps& ops) : path_(std::move(path)), fd_(fd), ops_(ops) {}
  ~Owner() {
    if (::getpid() != process_) {
      // The file is the parent's, and its descriptor is closed here. The thread cannot be joined, so it is leaked.
      static_cast<void>(beats_.release());
      return;
    }
    beats_.reset();
    // The directory may have been swapped for another one, in which another save has a file of this name.
    if (!path_.empty() && same_file(fd_, path_, ops_)) ops_.unlink(path_.c_str());
    Descriptors::all().close(fd_, ops_);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  void set_path(std::string path) { path_ = std::move(path); }

  void write(std::string_view text) {
    const std::string all = std::string(text) + beat_digits(0);
    io::write_fully(ops_, fd_, {reinterpret_cast<const std::byte*>(all.data()), all.size()}, 0, path_);
    if (io::retry_interrupted([&] { return ops_.ftruncate(fd_, static_cast<off_t>(all.size())); }) != 0) {
      throw io::io_error(errno, "cannot shorten the file", path_);
    }
  }
  void start_heartbeat(std::size_t text_bytes) {
    beats_ =
        std::make_unique<std::jthread>([this, text_bytes](const std::stop_token& stop) { beat(stop, text_bytes); });
  }

 private:
  void beat(const std::stop_token& stop, std::size_t text_bytes) {
    std::mutex mutex;
    std::condition_variable_any wake;
    for (std::uint64_t n = 1;; ++n) {
      std::unique_lock lock(mutex);
      if (wake.wait_for(lock, stop, kHeartbeat, [] { return false; }) || stop.stop_requested()) return;
      const std::string digits = beat_digits(n);
      // Where this fails, the lock is the only sign of life.
      ops_.pwrite(fd_, digits.data(), digits.size(), static_cast<off_t>(text_bytes));
    }
  }

  std::string path_;
  const int fd_;
  io::FileOps& ops_;
  const pid_t process_ = ::getpid();
  std::unique_ptr<std::jthread> beats_;
};

HeldFile::HeldFile(std::unique_ptr<Owner> owner) : owner_(std::move(owner)) {}
HeldFile::HeldFile(HeldFile&& other) noexcept = default;
HeldFile::~HeldFile() = default;

HeldFile HeldFile::lock(const std::filesystem::path& path, io::FileOps& ops) {
  for (int attempt = 0; attempt < kLockTries; ++attempt) {
    constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    const int fd = Descriptors::all().open(path.native(), kFlags, ops);
    if (fd < 0) throw io::io_error(errno, "cannot create the lock of a save", path.native());
    auto owner = std::make_unique<Owner>("", fd, ops);  // without a path: the file may be another process's
    if (try_lock(fd, LOCK_EX, ops) != 0 && errno == EWOULDBLOCK) throw held_by_another(path);
    // The holder before us may have removed the file between our open and our lock.
    if (!same_file(fd, path.native(), ops)) continue;
    const HeldText before = read_held(fd, path.native(), ops);
    const std::string& host = io::host_id();
    if (!before.beat.empty() && before.text != host) {
      for (const auto end = ops.now() + kSilence; ops.now() < end; ops.pause(kHeartbeat)) {
        const auto now = look_at_held_file(path, ops);
        if (now && now->beat != before.beat) throw held_by_another(path);
      }
      if (!same_file(fd, path.native(), ops)) continue;
    }
    owner->set_path(path.native());
    owner->write(host);
    owner->start_heartbeat(host.size());
    return HeldFile(std::move(owner));
  }
  throw Error(ErrorCode::kConflict, "other saves keep coming and going").in_file(path.native());
}

HeldFile HeldFile::publish(const std::filesystem::path& path, std::string_view text, io::FileOps& ops) {
  const std::string temporary = path.native() + "." + io::random_digits();
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int fd = Descriptors::all().open(temporary, kFlags, ops);
  if (fd < 0) throw io::io_error(errno, "cannot publish the id of the save", path.native());
  auto owner = std::make_unique<Owner>(temporary, fd, ops);
  try_lock(fd, LOCK_EX, ops);  // on a file system without locks the heartbeat is the only sign of life
  owner->write(text);
  if (io::retry_interrupted([&] { return ops.rename(temporary.c_str(), path.c_str()); }) != 0) {
    throw io::io_error(errno, "cannot publish the id of the save", path.native());
  }
  owner->set_path(path.native());
  owner->start_heartbeat(text.size());
  return HeldFile(std::move(owner));
}

std::optional<HeldText> look_at_held_file(const std::filesystem::path& path, io::FileOps& ops) {
  const int fd = Descriptors::all().open(path.native(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, ops);
  if (fd < 0) return std::nullopt;
  std::optional<HeldText> found;
  try {
    found = read_held(fd, path.native(), ops);
    found->locked = try_lock(fd, LOCK_SH, ops) != 0 && errno == EWOULDBLOCK;
    if (!same_file(fd, path.native(), ops)) found.reset();  // replaced since we opened it
  } catch (const Error&) {
    found.reset();
  }
  Descriptors::all().close(fd, ops);
  return found;
}

}  // namespace weightstore::checkpoint
