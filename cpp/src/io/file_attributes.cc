#include "io/file_attributes.h"

#include <cstring>
#include <string_view>
#include <vector>

#include "io/checked_io.h"

namespace weightstore::io {
namespace {

constexpr std::string_view kAcl = "system.posix_acl_access";

// Not file capabilities, signatures or a union file system's own marks: those belong to the old contents.
bool is_copied(std::string_view name) {
  return name == kAcl || name == "security.selinux" || name.starts_with("user.");
}

std::vector<std::string> attribute_names(const std::string& path, FileOps& ops) {
  const auto read = [&](char* out, std::size_t size) {
    return retry_interrupted([&] { return ops.llistxattr(path.c_str(), out, size); });
  };
  std::vector<std::string> names;
  const ssize_t size = read(nullptr, 0);
  if (size <= 0) return names;
  std::vector<char> list(static_cast<std::size_t>(size));
  const ssize_t filled = read(list.data(), list.size());
  for (ssize_t at = 0; at < filled; at += static_cast<ssize_t>(names.back().size()) + 1) {
    names.emplace_back(list.data() + at);
  }
  return names;
}

bool copy_attribute(int fd, const std::string& from, const std::string& name, FileOps& ops) {
  const auto read = [&](char* out, std::size_t size) {
    return retry_interrupted([&] { return ops.lgetxattr(from.c_str(), name.c_str(), out, size); });
  };
  const ssize_t size = read(nullptr, 0);
  if (size < 0) return false;
  std::vector<char> value(static_cast<std::size_t>(size));
  const ssize_t filled = read(value.data(), value.size());
  if (filled < 0) return false;
  const auto bytes = static_cast<std::size_t>(filled);
  return retry_interrupted([&] { return ops.fsetxattr(fd, name.c_str(), value.data(), bytes); }) == 0;
}

// Returns whether the ACL, if there is one, is the old file's. An ACL says what the owner's group may do, so it is
// copied only together with the group.
bool copy_attributes(int fd, const std::string& from, bool with_acl, FileOps& ops) {
  bool acl_kept = true;
  for (const std::string& name : attribute_names(from, ops)) {
    if (!is_copied(name)) continue;
    const bool copied = (name != kAcl || with_acl) && copy_attribute(fd, from, name, ops);
    if (name == kAcl) acl_kept = copied;
  }
  return acl_kept;
}

}  // namespace

void take_attributes(int fd, const std::string& replaced, const struct stat& status, const std::string& target,
                     FileOps& ops) {
  struct stat now;
  const bool known = retry_interrupted([&] { return ops.fstat(fd, &now); }) == 0;
  const auto give = [&](uid_t owner, gid_t group) {
    return retry_interrupted([&] { return ops.fchown(fd, owner, group); }) == 0;
  };
  constexpr auto kSame = static_cast<uid_t>(-1);
  bool owner_kept = known && now.st_uid == status.st_uid;
  bool group_kept = known && now.st_gid == status.st_gid;
  if (!owner_kept || !group_kept) {
    if (give(status.st_uid, status.st_gid)) {
      owner_kept = group_kept = true;
    } else if (!group_kept) {
      group_kept = give(kSame, status.st_gid);  // members of the group may, though they do not own the old file
    }
  }
  const bool acl_kept = copy_attributes(fd, replaced, group_kept, ops);
  mode_t mode = status.st_mode & 07777;
  if (!owner_kept || !group_kept) mode &= ~static_cast<mode_t>(S_ISUID | S_ISGID);
  // With an ACL the group bits of the mode are a mask, and not what the group may do.
  if (!group_kept || !acl_kept) mode = (mode & ~static_cast<mode_t>(S_IRWXG)) | (mode & S_IRWXO) << 3;
  if (retry_interrupted([&] { return ops.fstat(fd, &now); }) == 0 && (now.st_mode & 07777) == mode) return;
  if (retry_interrupted([&] { return ops.fchmod(fd, mode); }) != 0) {
    throw io_error(errno, "cannot give the new file the mode of the one it replaces", target);
  }
}

}  // namespace weightstore::io
