#include "io/locks/liveness.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "io/checked_io.h"

namespace weightstore::io {
namespace {

std::string kernel_name() {
  std::string name;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), name);
  struct utsname system;
  if (name.empty() && ::uname(&system) == 0) name = system.nodename;
  return name;
}

// FNV-1a: the same digits in every process and every release.
std::string hash_digits(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::array<char, kHostDigits + 1> digits;
  std::snprintf(digits.data(), digits.size(), "%08x", static_cast<std::uint32_t>(hash ^ (hash >> 32)));
  return digits.data();
}

bool untouched_for_long(int fd, FileOps& ops) {
  struct stat status;
  if (retry_interrupted([&] { return ops.fstat(fd, &status); }) != 0) return false;
  const auto written = std::chrono::seconds(status.st_mtim.tv_sec);
  return std::chrono::system_clock::now().time_since_epoch() - written > kAbandonedAfter;
}

}  // namespace

const std::string& host_id() {
  static const std::string& id = *new std::string(hash_digits(kernel_name()));
  return id;
}

bool writer_is_gone(int fd, std::string_view host, FileOps& ops) noexcept {
  const bool free = retry_interrupted([&] { return ops.flock(fd, LOCK_SH | LOCK_NB); }) == 0;
  if (!free && errno == EWOULDBLOCK) return false;
  return (free && host == host_id()) || untouched_for_long(fd, ops);
}

}  // namespace weightstore::io
