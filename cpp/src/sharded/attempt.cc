#include "sharded/attempt.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <thread>
#include <utility>

#include "io/atomic_file.h"
#include "io/checked_io.h"
#include "weightstore/error.h"

namespace weightstore::sharded {
namespace {

constexpr std::size_t kMaxAttempt = 64;
constexpr std::size_t kMaxRun = 256;
constexpr int kLockTries = 10;
constexpr const char* kLock = ".weightstore-save.lock";
constexpr const char* kToken = ".weightstore-save.token";
constexpr std::string_view kDataSuffix = ".safetensors";
constexpr std::string_view kRecordSuffix = ".json";

std::string numbered(const char* pattern, std::uint64_t n) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), pattern, static_cast<unsigned long long>(n));
  return text.data();
}

// Takes `mark` and the digits behind it off the end of `text`, if that is how it ends.
bool remove_number(std::string_view& text, std::string_view mark) {
  const std::size_t digits = text.find_last_not_of("0123456789") + 1;
  if (digits == text.size() || !text.substr(0, digits).ends_with(mark)) return false;
  text = text.substr(0, digits - mark.size());
  return true;
}

// The token, or one that was not published yet; an attempt may be called "token" or "token.1" as well.
bool is_token(std::string_view name) {
  if (!name.starts_with(kToken)) return false;
  name.remove_prefix(std::string_view(kToken).size());
  return name.empty() || (name.starts_with('.') && name.find_first_not_of("0123456789abcdef", 1) == name.npos);
}

bool same_file(int fd, const std::string& path, io::FileOps& ops) {
  struct stat opened;
  struct stat named;
  return ops.fstat(fd, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

int try_lock(int fd, int operation, io::FileOps& ops) {
  return io::retry_interrupted([&] { return ops.flock(fd, operation | LOCK_NB); });
}

}  // namespace

bool is_attempt(std::string_view text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !text.empty() && text.size() <= kMaxAttempt && text.find_first_not_of(kAllowed) == std::string_view::npos;
}

void check_attempt(std::string_view attempt) {
  if (is_attempt(attempt)) return;
  throw Error(ErrorCode::kInvalidArgument,
              "the attempt '" + printable(attempt) +
                  "' must be 1 to 64 letters, digits, '-', '_' and '.', such as \"step-1000\"");
}

void check_run(std::string_view run) {
  if (run.size() <= kMaxRun && run.find('\n') == std::string_view::npos) return;
  throw Error(ErrorCode::kInvalidArgument,
              "the run '" + printable(run) + "' must be one line of at most " + std::to_string(kMaxRun) + " bytes");
}

std::string protocol_name(const std::string& rest) { return kHiddenPrefix + rest; }

std::string record_name(std::string_view attempt, std::uint64_t shard) {
  return protocol_name(std::string(attempt) + numbered("-s%05llu", shard) + std::string(kRecordSuffix));
}

std::string data_name(std::string_view prefix, std::string_view attempt, unsigned attempt_try, std::uint64_t shard,
                      std::uint64_t file) {
  return std::string(prefix) + std::string(attempt) + (attempt_try > 1 ? "~" + std::to_string(attempt_try) : "") +
         numbered("-s%05llu", shard) + numbered("-f%05llu", file) + std::string(kDataSuffix);
}

std::optional<std::string> attempt_of_name(std::string_view name) {
  if (name == kLock || is_token(name) || name == kJournal) return std::string();
  const bool hidden = name.starts_with(kHiddenPrefix);
  if (!hidden && !name.starts_with(kPlainPrefix)) return std::nullopt;
  name.remove_prefix(std::string_view(hidden ? kHiddenPrefix : kPlainPrefix).size());
  if (name.ends_with(kDataSuffix)) {
    name.remove_suffix(kDataSuffix.size());
    if (!remove_number(name, "-f") || !remove_number(name, "-s")) return std::nullopt;
    remove_number(name, "~");
  } else if (hidden && name.ends_with(kRecordSuffix)) {
    name.remove_suffix(kRecordSuffix.size());
    if (!remove_number(name, "-s")) return std::nullopt;
  } else {
    return std::nullopt;
  }
  if (!is_attempt(name)) return std::nullopt;
  return std::string(name);
}

unsigned next_try(const std::filesystem::path& directory, std::string_view prefix, std::string_view attempt,
                  std::uint64_t shard) {
  for (unsigned n = 1;; ++n) {
    // What is common to all files of the shard in this try.
    const std::string sample = data_name(prefix, attempt, n, shard, 0);
    const std::string stem = sample.substr(0, sample.rfind("-f") + 2);
    bool taken = false;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      taken |= entry.path().filename().native().starts_with(stem);
    }
    if (!taken) return n;
  }
}

HeldFile HeldFile::lock(const std::filesystem::path& path, io::FileOps& ops) {
  for (int attempt = 0; attempt < kLockTries; ++attempt) {
    constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    const int fd = io::retry_interrupted([&] { return ops.open(path.c_str(), kFlags, 0666); });
    if (fd < 0) throw io::io_error(errno, "cannot create the lock of a save", path.native());
    HeldFile held(path.native(), fd, ops);
    if (try_lock(fd, LOCK_EX, ops) != 0 && errno == EWOULDBLOCK) {
      held.path_.clear();  // somebody else's
      throw Error(ErrorCode::kConflict, "another save into this directory is running; let it end first")
          .in_file(path.parent_path().native())
          .with_errno(EWOULDBLOCK);
    }
    // The holder before us may have removed the file between our open and our lock.
    if (same_file(fd, path.native(), ops)) return held;
    held.path_.clear();
  }
  throw Error(ErrorCode::kConflict, "other saves keep coming and going").in_file(path.native());
}

HeldFile HeldFile::publish(const std::filesystem::path& path, std::string_view text, io::FileOps& ops) {
  const std::string temporary = path.native() + "." + io::random_digits();
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int fd = io::retry_interrupted([&] { return ops.open(temporary.c_str(), kFlags, 0666); });
  if (fd < 0) throw io::io_error(errno, "cannot publish the id of the save", path.native());
  HeldFile held(temporary, fd, ops);
  try_lock(fd, LOCK_EX, ops);  // where there are no locks, every token counts as alive
  io::write_fully(ops, fd, {reinterpret_cast<const std::byte*>(text.data()), text.size()}, 0, path.native());
  if (io::retry_interrupted([&] { return ops.rename(temporary.c_str(), path.c_str()); }) != 0) {
    throw io::io_error(errno, "cannot publish the id of the save", path.native());
  }
  held.path_ = path.native();
  return held;
}

HeldFile::HeldFile(HeldFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), ops_(other.ops_) {
  other.path_.clear();
}

HeldFile::~HeldFile() {
  if (fd_ < 0) return;
  // The directory may have been swapped for another, with another save's file under the same name.
  if (!path_.empty() && same_file(fd_, path_, ops_)) ops_.unlink(path_.c_str());
  io::close_quietly(ops_, fd_);
}

HeldFile lock_directory(const std::filesystem::path& directory, io::FileOps& ops) {
  return HeldFile::lock(directory / kLock, ops);
}

HeldFile publish_attempt(const std::filesystem::path& directory, std::string_view attempt, std::string_view run,
                         io::FileOps& ops) {
  return HeldFile::publish(directory / kToken, std::string(attempt) + "\n" + std::string(run), ops);
}

std::string wait_for_attempt(const std::filesystem::path& directory, std::string_view run,
                             std::chrono::milliseconds timeout,
                             const std::function<bool(const std::string&)>& took_part,
                             const std::function<void()>& watch, io::FileOps& ops) {
  const std::string path = (directory / kToken).native();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const int fd = io::retry_interrupted([&] { return ops.open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0); });
    if (fd >= 0) {
      std::array<char, kMaxAttempt + kMaxRun + 2> text;
      std::size_t length = 0;
      try {
        length = io::read_up_to(ops, fd, std::as_writable_bytes(std::span(text)), 0, path);
      } catch (const Error&) {
      }
      const std::string_view published(text.data(), length);
      const std::size_t line = std::min(published.find('\n'), length);
      const std::string attempt(published.substr(0, line));
      const bool is_ours = line < length && published.substr(line + 1) == run;
      const bool is_new = is_ours && is_attempt(attempt) && !took_part(attempt);
      // Last: shard 0 lets go of its token before it removes the records that tell who took part.
      const bool alive = same_file(fd, path, ops) && try_lock(fd, LOCK_SH, ops) != 0;
      io::close_quietly(ops, fd);
      if (alive && is_new) return attempt;
    }
    if (watch) watch();
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Error(ErrorCode::kIo, "shard 0 did not begin a save here within " + std::to_string(timeout.count()) +
                                      " ms; start it, or give all shards the same `attempt`")
          .in_file(directory.native())
          .with_errno(ETIMEDOUT);
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace weightstore::sharded
