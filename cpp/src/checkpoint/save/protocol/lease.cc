#include "checkpoint/save/protocol/lease.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>

#include "io/atomic_file.h"
#include "io/checked_io.h"
#include "io/locks/fork_closed.h"
#include "io/locks/liveness.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

constexpr int kLockTries = 10;
constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kHeartbeatDigits = 16;
constexpr auto kLeaseTimeout = std::chrono::seconds(2);  // an owner without a heartbeat for this long is dead

std::string heartbeat_digits(std::uint64_t n) {
  std::array<char, kHeartbeatDigits + 1> digits;
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(n));
  return digits.data();
}

int try_lock(int fd, int operation, io::FileOps& ops) {
  return io::retry_interrupted([&] { return ops.flock(fd, operation | LOCK_NB); });
}

// The text and the last heartbeat of the file. Both are empty for a file without a heartbeat.
LeaseState read_state(int fd, const std::string& path, io::FileOps& ops) {
  std::array<char, kMaxText + kHeartbeatDigits> bytes;
  const std::size_t length = io::read_up_to(ops, fd, std::as_writable_bytes(std::span(bytes)), 0, path);
  if (length < kHeartbeatDigits) return {};
  const std::string_view all(bytes.data(), length);
  return {std::string(all.substr(0, length - kHeartbeatDigits)), std::string(all.substr(length - kHeartbeatDigits)),
          false};
}

Error held_by_another_process(const std::filesystem::path& path) {
  return Error(ErrorCode::kConflict, "another save into this directory is running; wait until it ends")
      .in_file(path.parent_path().native())
      .equivalent_errno(EWOULDBLOCK);
}

}  // namespace

class Lease::Owner {
 public:
  // Takes over a descriptor of io::open_fork_closed().
  Owner(std::string path, int fd, io::FileOps& ops) : path_(std::move(path)), fd_(fd), ops_(ops) {}
  ~Owner() {
    if (::getpid() != process_) {
      // In a forked child: the file is the parent's, and fork has closed the descriptor. The thread of the heartbeat
      // does not exist here and cannot be joined, so its object is leaked.
      static_cast<void>(heartbeats_.release());
      return;
    }
    heartbeats_.reset();
    // A commit may have exchanged the directory. Then the path may name the file of another save.
    if (!path_.empty() && io::names_open_file(path_, fd_, ops_)) ops_.unlink(path_.c_str());
    io::close_fork_closed(fd_, ops_);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  void set_path(std::string path) { path_ = std::move(path); }

  void write(std::string_view text) {
    const std::string all = std::string(text) + heartbeat_digits(0);
    io::write_fully(ops_, fd_, {reinterpret_cast<const std::byte*>(all.data()), all.size()}, 0, path_);
    if (io::retry_interrupted([&] { return ops_.ftruncate(fd_, static_cast<off_t>(all.size())); }) != 0) {
      throw io::io_error(errno, "cannot shorten the file", path_);
    }
  }
  void start_heartbeat(std::size_t text_bytes) {
    heartbeats_ =
        std::make_unique<std::jthread>([this, text_bytes](const std::stop_token& stop) { beat(stop, text_bytes); });
  }

 private:
  void beat(const std::stop_token& stop, std::size_t text_bytes) {
    std::mutex mutex;
    std::condition_variable_any wake;
    for (std::uint64_t n = 1;; ++n) {
      std::unique_lock lock(mutex);
      if (wake.wait_for(lock, stop, kHeartbeat, [] { return false; }) || stop.stop_requested()) return;
      const std::string digits = heartbeat_digits(n);
      // If this fails, the lock is the only sign of life.
      ops_.pwrite(fd_, digits.data(), digits.size(), static_cast<off_t>(text_bytes));
    }
  }

  std::string path_;
  const int fd_;
  io::FileOps& ops_;
  const pid_t process_ = ::getpid();
  std::unique_ptr<std::jthread> heartbeats_;
};

Lease::Lease(std::unique_ptr<Owner> owner) : owner_(std::move(owner)) {}
Lease::Lease(Lease&& other) noexcept = default;
Lease::~Lease() = default;

Lease Lease::acquire(const std::filesystem::path& path, io::FileOps& ops) {
  for (int attempt = 0; attempt < kLockTries; ++attempt) {
    constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    const int fd = io::open_fork_closed(path.native(), kFlags, 0666, ops);
    if (fd < 0) throw io::io_error(errno, "cannot create the lock of a save", path.native());
    auto owner = std::make_unique<Owner>("", fd, ops);  // without a path: the file may belong to another process
    if (try_lock(fd, LOCK_EX, ops) != 0 && errno == EWOULDBLOCK) throw held_by_another_process(path);
    // The previous owner may have removed the file after this process opened it and before it had the lock.
    if (!io::names_open_file(path.native(), fd, ops)) continue;
    const LeaseState before = read_state(fd, path.native(), ops);
    const std::string& host = io::host_id();
    if (!before.heartbeat.empty() && before.text != host) {
      for (const auto end = ops.now() + kLeaseTimeout; ops.now() < end; ops.pause(kHeartbeat)) {
        const auto now = read_lease(path, ops);
        if (now && now->heartbeat != before.heartbeat) throw held_by_another_process(path);
      }
      if (!io::names_open_file(path.native(), fd, ops)) continue;
    }
    owner->set_path(path.native());
    owner->write(host);
    owner->start_heartbeat(host.size());
    return Lease(std::move(owner));
  }
  throw Error(ErrorCode::kConflict, "other saves keep taking and releasing the lock of this directory")
      .in_file(path.native());
}

Lease Lease::publish(const std::filesystem::path& path, std::string_view text, io::FileOps& ops) {
  const std::string temporary = path.native() + "." + io::random_digits();
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int fd = io::open_fork_closed(temporary, kFlags, 0666, ops);
  if (fd < 0) throw io::io_error(errno, "cannot publish the id of the save", path.native());
  auto owner = std::make_unique<Owner>(temporary, fd, ops);
  try_lock(fd, LOCK_EX, ops);  // on a file system without locks the heartbeat is the only sign of life
  owner->write(text);
  if (io::retry_interrupted([&] { return ops.rename(temporary.c_str(), path.c_str()); }) != 0) {
    throw io::io_error(errno, "cannot publish the id of the save", path.native());
  }
  owner->set_path(path.native());
  owner->start_heartbeat(text.size());
  return Lease(std::move(owner));
}

std::optional<LeaseState> read_lease(const std::filesystem::path& path, io::FileOps& ops) {
  const int fd = io::open_fork_closed(path.native(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0, ops);
  if (fd < 0) return std::nullopt;
  std::optional<LeaseState> found;
  try {
    found = read_state(fd, path.native(), ops);
    found->locked = try_lock(fd, LOCK_SH, ops) != 0 && errno == EWOULDBLOCK;
    if (!io::names_open_file(path.native(), fd, ops)) found.reset();  // replaced since it was opened
  } catch (const Error&) {
    found.reset();
  }
  io::close_fork_closed(fd, ops);
  return found;
}

}  // namespace weightstore::checkpoint
