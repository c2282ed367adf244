#include "checkpoint/save/protocol/staging_directory.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "checkpoint/save_names.h"
#include "io/checked_io.h"
#include "io/paths.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

constexpr std::string_view kSuffix = ".weightstore-save";
constexpr std::size_t kMaxName = 255;  // of a file, in bytes
constexpr std::size_t kHashDigits = 16;
// The longest stem with which every attempt fits: "." stem "~" attempt suffix.
constexpr std::size_t kMaxStem = kMaxName - 2 - kMaxAttempt - kSuffix.size();

// FNV-1a: the same digits in every process and on every host.
std::string hash_digits(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::array<char, kHashDigits + 1> digits;
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash));
  return digits.data();
}

// The name of the target, shortened when it is long. Shortened stems have exactly kMaxStem bytes and other stems have
// fewer, so that two targets share a stem only if their hashes are equal.
std::string stem_of(const std::filesystem::path& target) {
  const std::string name = target.filename().native();
  if (name.size() < kMaxStem) return name;
  constexpr std::size_t kKept = kMaxStem - 1 - kHashDigits;
  std::size_t kept = kKept;
  while (kept > 0 && (static_cast<unsigned char>(name[kept]) & 0xC0) == 0x80) --kept;  // not inside a UTF-8 character
  return name.substr(0, kept) + std::string(kKept - kept + 1, '-') + hash_digits(name);
}

// No attempt has a '~', so that the stem ends at the last one: targets whose names begin alike are told apart.
bool is_staging_directory_of(std::string_view name, const std::filesystem::path& target) {
  const std::string prefix = "." + stem_of(target) + "~";
  if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) return false;
  name.remove_suffix(kSuffix.size());
  return name.size() > prefix.size() && is_attempt(name.substr(prefix.size()));
}

// The exchange makes the staging directory that of the checkpoint: it must be as private.
void copy_permissions(const std::filesystem::path& from, const std::filesystem::path& to, io::FileOps& ops) {
  const auto wanted = io::find_file(from, ops);
  const auto found = io::find_file(to, ops);
  if (!wanted || !found || wanted->st_mode == found->st_mode) return;
  if (io::retry_interrupted([&] { return ops.chmod(to.c_str(), wanted->st_mode & 07777); }) != 0) {
    throw io::io_error(errno, "cannot give the staging directory the permissions of the checkpoint", to.native());
  }
}

}  // namespace

SaveDirectories directories_of(const std::filesystem::path& target, const SaveOptions& options,
                               std::string_view attempt) {
  const bool staged = options.layout == CheckpointLayout::kRecis && options.overwrite;
  return {target, staged ? staging_directory(target, attempt) : target};
}

std::filesystem::path staging_directory(const std::filesystem::path& target, std::string_view attempt) {
  return target.parent_path() / ("." + stem_of(target) + "~" + std::string(attempt) + std::string(kSuffix));
}

std::vector<std::filesystem::path> directories_of_all_saves(const std::filesystem::path& target, io::FileOps& ops) {
  std::vector<std::filesystem::path> directories = {target};
  try {
    for (const std::string& name : io::list_directory(target.parent_path(), ops)) {
      if (is_staging_directory_of(name, target)) directories.push_back(target.parent_path() / name);
    }
  } catch (const Error& error) {
    if (error.os_errno() != EACCES) throw;
  }
  return directories;
}

void create_staging_directory(const SaveDirectories& directories, io::FileOps& ops) {
  if (!directories.is_staged()) return;
  if (io::retry_interrupted([&] { return ops.mkdir(directories.work.c_str(), 0777); }) != 0) {
    if (errno == EEXIST) return;
    throw io::io_error(errno, "cannot create the staging directory of the new checkpoint", directories.work.native());
  }
  try {
    copy_permissions(directories.target, directories.work, ops);
  } catch (const Error&) {
    ops.rmdir(directories.work.c_str());
    throw;
  }
}

}  // namespace weightstore::checkpoint
