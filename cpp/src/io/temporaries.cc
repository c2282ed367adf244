#include "io/temporaries.h"

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "io/checked_io.h"
#include "io/locks/fork_closed.h"
#include "io/locks/liveness.h"
#include "io/paths.h"

namespace weightstore::io {
namespace {

constexpr std::string_view kSuffix = ".weightstore-tmp";
constexpr std::size_t kRandomDigits = 16;
constexpr std::size_t kNameMax = 255;

bool are_digits(std::string_view text) { return text.find_first_not_of("0123456789abcdef") == std::string_view::npos; }

// The id of the host that made the temporary, empty when the name has none; nullopt when this is no temporary's name.
std::optional<std::string_view> host_of_temporary(std::string_view name) {
  if (!name.starts_with('.') || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const std::size_t dot = name.rfind('.');
  if (dot < 2 || dot == std::string_view::npos) return std::nullopt;
  std::string_view id = name.substr(dot + 1);
  std::string_view host;
  if (id.size() == kHostDigits + 1 + kRandomDigits && id[kHostDigits] == '-') {
    host = id.substr(0, kHostDigits);
    id.remove_prefix(kHostDigits + 1);
  }
  if (id.size() != kRandomDigits || !are_digits(id) || !are_digits(host)) return std::nullopt;
  return host;
}

// A live writer holds its lock from just after the creation to just after the rename. A writer whose file we remove
// before it has the lock finds the file gone and creates another.
void remove_if_stale(const std::string& path, std::string_view host, FileOps& ops) {
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const int fd = open_fork_closed(path, kFlags, 0, ops);
  if (fd < 0) return;
  struct stat status;
  if (ops.fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && writer_is_gone(fd, host, ops) &&
      names_open_file(path, fd, ops)) {
    ops.unlink(path.c_str());
  }
  close_fork_closed(fd, ops);
}

}  // namespace

std::string random_digits(std::size_t count) {
  std::uint64_t bits = 0;
  const ssize_t n = retry_interrupted([&] { return ::getrandom(&bits, sizeof bits, 0); });
  if (n != static_cast<ssize_t>(sizeof bits)) throw Error(ErrorCode::kIo, "no random numbers").with_errno(errno);
  std::string digits(std::min(count, 2 * sizeof bits), '0');
  for (char& digit : digits) {
    digit = "0123456789abcdef"[bits & 15];
    bits >>= 4;
  }
  return digits;
}

std::string temporary_name(const std::string& target_name) {
  const std::string ending = "." + host_id() + "-" + random_digits(kRandomDigits) + std::string(kSuffix);
  return "." + target_name.substr(0, kNameMax - ending.size() - 1) + ending;
}

void remove_stale_temporaries(const std::string& directory, FileOps& ops) noexcept {
  try {
    for (const std::string& name : list_directory(directory, ops)) {
      if (const auto host = host_of_temporary(name)) remove_if_stale(directory + "/" + name, *host, ops);
    }
  } catch (...) {
  }
}

}  // namespace weightstore::io
