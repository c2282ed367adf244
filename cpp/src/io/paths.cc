#include "io/paths.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "io/checked_io.h"

namespace weightstore::io {
namespace {

bool is_missing(int error) { return error == ENOENT || error == ENOTDIR; }

std::optional<struct stat> checked_status(int failed, const struct stat& status, const std::filesystem::path& path) {
  if (failed == 0) return status;
  if (is_missing(errno)) return std::nullopt;
  throw io_error(errno, "cannot look at the path", path.native());
}

// The resolved path, or nullopt with errno.
std::optional<std::filesystem::path> resolve(const std::filesystem::path& path, FileOps& ops) {
  for (;;) {
    const std::unique_ptr<char, decltype(&std::free)> resolved(ops.realpath(path.c_str()), &std::free);
    if (resolved != nullptr) return std::filesystem::path(resolved.get());
    if (errno != EINTR) return std::nullopt;
  }
}

// "a/b/" is the directory "a/b".
std::filesystem::path without_slash(const std::filesystem::path& path) {
  return path.has_filename() || !path.has_relative_path() ? path : path.parent_path();
}

}  // namespace

std::optional<struct stat> find_file(const std::filesystem::path& path, FileOps& ops) {
  struct stat status;
  const int failed = retry_interrupted([&] { return ops.stat(path.c_str(), &status); });
  return checked_status(failed, status, path);
}

std::optional<struct stat> find_name(const std::filesystem::path& path, FileOps& ops) {
  struct stat status;
  const int failed = retry_interrupted([&] { return ops.lstat(path.c_str(), &status); });
  return checked_status(failed, status, path);
}

bool is_there(const std::filesystem::path& path, FileOps& ops) { return find_name(path, ops).has_value(); }

bool is_directory(const std::filesystem::path& path, FileOps& ops) {
  const auto status = find_file(path, ops);
  return status && S_ISDIR(status->st_mode);
}

std::vector<std::string> list_directory(const std::filesystem::path& directory, FileOps& ops) {
  const auto fail = [&] { return io_error(errno, "cannot list the directory", directory.native()); };
  const auto close = [&](DIR* stream) { ops.closedir(stream); };
  std::unique_ptr<DIR, decltype(close)> stream(nullptr, close);
  do {
    stream.reset(ops.opendir(directory.c_str()));
  } while (stream == nullptr && errno == EINTR);
  if (stream == nullptr) throw fail();
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const struct dirent* entry = ops.readdir(stream.get());
    if (entry == nullptr && errno == EINTR) continue;
    if (entry == nullptr && errno != 0) throw fail();
    if (entry == nullptr) return names;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

std::vector<std::filesystem::path> create_directories(const std::filesystem::path& directory, FileOps& ops) {
  std::vector<std::filesystem::path> missing;
  for (auto at = without_slash(directory); !at.empty() && !find_file(at, ops); at = at.parent_path()) {
    missing.push_back(at);
  }
  std::reverse(missing.begin(), missing.end());
  for (const std::filesystem::path& path : missing) {
    const int failed = retry_interrupted([&] { return ops.mkdir(path.c_str(), 0777); });
    // Somebody else may have created it meanwhile. What is in the way is told below, of the whole path.
    if (failed != 0 && errno != EEXIST) throw io_error(errno, "cannot create the directory", path.native());
  }
  if (!is_directory(directory, ops)) {
    throw io_error(ENOTDIR, "cannot create the directory, because something else is there", directory.native());
  }
  return missing;
}

std::filesystem::path canonical_path(const std::filesystem::path& path, FileOps& ops) {
  if (auto resolved = resolve(path, ops)) return *std::move(resolved);
  throw io_error(errno, "cannot resolve the path", path.native());
}

std::filesystem::path weakly_canonical_path(const std::filesystem::path& path, FileOps& ops) {
  std::filesystem::path existing = without_slash(path);
  std::filesystem::path rest;
  for (;;) {
    const auto resolved = resolve(existing.empty() ? "." : existing, ops);
    if (resolved) return rest.empty() ? *resolved : (*resolved / rest).lexically_normal();
    if (!is_missing(errno) || !existing.has_relative_path())
      throw io_error(errno, "cannot resolve the path", path.native());
    rest = rest.empty() ? existing.filename() : existing.filename() / rest;
    existing = existing.parent_path();
  }
}

}  // namespace weightstore::io
