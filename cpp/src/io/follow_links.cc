#include "io/follow_links.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "io/checked_io.h"

namespace weightstore::io {
namespace {

constexpr int kMaxLinks = 40;

void check_may_follow(const std::filesystem::path& link, uid_t owner) {
  if (owner == ::geteuid()) return;
  const std::string directory = link.parent_path().empty() ? "." : link.parent_path().native();
  struct stat status;
  if (::stat(directory.c_str(), &status) != 0)
    throw io_error(errno, "cannot look at '" + directory + "'", link.native());
  const bool shared = (status.st_mode & S_ISVTX) != 0 && (status.st_mode & S_IWOTH) != 0;
  if (!shared || owner == status.st_uid) return;
  throw io_error(EACCES,
                 "this is a symlink of another user (uid " + std::to_string(owner) +
                     ") in a directory that everybody may write to; it was not followed, remove it or save to another "
                     "path",
                 link.native());
}

}  // namespace

std::filesystem::path follow_links(std::filesystem::path path) {
  const std::filesystem::path first = path;
  for (int hops = 0; hops < kMaxLinks; ++hops) {
    struct stat status;
    if (::lstat(path.c_str(), &status) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return path;
      throw io_error(errno, "cannot look at the target", path.native());
    }
    if (!S_ISLNK(status.st_mode)) return path;
    check_may_follow(path, status.st_uid);
    std::error_code error;
    const auto next = std::filesystem::read_symlink(path, error);
    if (error) throw io_error(error.value(), "cannot read the symlink", path.native());
    path = path.parent_path() / next;  // `next` alone when it is absolute
  }
  throw io_error(ELOOP, "cannot follow the symlink", first.native());
}

}  // namespace weightstore::io
