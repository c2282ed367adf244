#include "io/follow_links.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <string>

#include "io/checked_io.h"
#include "io/paths.h"

namespace weightstore::io {
namespace {

constexpr int kMaxLinks = 40;

void check_may_follow(const std::filesystem::path& link, uid_t owner, FileOps& ops) {
  if (owner == ::geteuid()) return;
  const std::string directory = link.parent_path().empty() ? "." : link.parent_path().native();
  struct stat status;
  if (retry_interrupted([&] { return ops.stat(directory.c_str(), &status); }) != 0) {
    throw io_error(errno, "cannot look at '" + directory + "'", link.native());
  }
  const bool shared = (status.st_mode & S_ISVTX) != 0 && (status.st_mode & S_IWOTH) != 0;
  if (!shared || owner == status.st_uid) return;
  throw io_error(EACCES,
                 "this is a symlink of another user (uid " + std::to_string(owner) +
                     ") in a directory that everybody may write to; it was not followed, remove it or save to another "
                     "path",
                 link.native());
}

std::string read_link(const std::filesystem::path& link, FileOps& ops) {
  std::string target(PATH_MAX, '\0');  // the system makes no longer links
  const ssize_t size = retry_interrupted([&] { return ops.readlink(link.c_str(), target.data(), target.size()); });
  if (size < 0) throw io_error(errno, "cannot read the symlink", link.native());
  target.resize(static_cast<std::size_t>(size));
  return target;
}

}  // namespace

std::filesystem::path follow_links(std::filesystem::path path, FileOps& ops) {
  const std::filesystem::path first = path;
  for (int hops = 0; hops < kMaxLinks; ++hops) {
    const auto status = find_name(path, ops);
    if (!status || !S_ISLNK(status->st_mode)) return path;
    check_may_follow(path, status->st_uid, ops);
    path = path.parent_path() / read_link(path, ops);  // the link's text alone when it is absolute
  }
  throw io_error(ELOOP, "cannot follow the symlink", first.native());
}

}  // namespace weightstore::io
