#include "file/shard_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "file/shard_names.h"
#include "io/checked_io.h"
#include "io/locks/fork_closed.h"
#include "io/locks/liveness.h"
#include "io/paths.h"
#include "io/temporaries.h"
#include "io/text_file.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/safetensors.h"

namespace weightstore {
namespace {

constexpr std::string_view kSuffix = ".weightstore-set";
constexpr std::string_view kFirstLine = "weightstore shard set 1\n";
constexpr int kMaxAttempts = 100;
constexpr std::uint64_t kMaxJournalBytes = std::uint64_t{64} << 20;

std::string journal_prefix(const std::string& stem) { return "." + stem + "."; }

struct Author {
  std::string host;
  std::string id;
};

// Who wrote the journal of this name; nullopt when it is no journal of a set with this stem.
std::optional<Author> author_of(std::string_view name, const std::string& stem) {
  const std::string prefix = journal_prefix(stem);
  if (name.size() != prefix.size() + io::kHostDigits + 1 + kSetIdDigits + kSuffix.size()) return std::nullopt;
  if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) return std::nullopt;
  const std::string_view host = name.substr(prefix.size(), io::kHostDigits);
  const std::string_view id = name.substr(prefix.size() + io::kHostDigits + 1, kSetIdDigits);
  if (name[prefix.size() + io::kHostDigits] != '-') return std::nullopt;
  if ((std::string(host) + std::string(id)).find_first_not_of("0123456789abcdef") != std::string::npos) {
    return std::nullopt;
  }
  return Author{std::string(host), std::string(id)};
}

// Inode and time of modification; nullopt when there is no such file.
std::optional<std::string> identity_of(const std::string& path, io::FileOps& ops) {
  const auto status = io::find_name(path, ops);
  if (!status) return std::nullopt;
  return std::to_string(status->st_ino) + " " + std::to_string(status->st_mtim.tv_sec) + "." +
         std::to_string(status->st_mtim.tv_nsec);
}

// A file that a journal names.
struct Entry {
  std::string name;
  std::optional<std::string> identity;  // without one, the name is proof enough
  bool needs_index = false;             // superfluous only when there is an index, and the index does not name it
};

// Open, and locked against its author: a save that has just made its journal must not get the lock of one that is
// about to be removed.
class Journal {
 public:
  Journal(std::string path, int fd, io::FileOps& ops) : path_(std::move(path)), fd_(fd), ops_(&ops) {}
  Journal(Journal&& other) noexcept
      : entries(std::move(other.entries)),
        path_(std::move(other.path_)),
        fd_(std::exchange(other.fd_, -1)),
        ops_(other.ops_) {}
  ~Journal() {
    if (fd_ >= 0) io::close_fork_closed(fd_, *ops_);
  }
  Journal& operator=(Journal&&) = delete;

  void remove() const {
    if (!io::names_open_file(path_, fd_, *ops_)) return;
    io::retry_interrupted([&] { return ops_->unlink(path_.c_str()); });
  }

  std::vector<Entry> entries;

 private:
  std::string path_;
  int fd_;
  io::FileOps* ops_;
};

// A journal that was cut short, or written by somebody else, yields the entries that make sense.
std::vector<Entry> parse(const std::string& text, const std::string& stem, const std::string& id) {
  std::vector<Entry> entries;
  if (!text.starts_with(kFirstLine)) return entries;
  std::istringstream lines(text.substr(kFirstLine.size()));
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    std::istringstream words(line);
    std::string kind;
    std::string inode;
    std::string mtime;
    words >> kind;
    if (kind == "renamed" || kind == "old" || kind == "removed") words >> inode >> mtime;
    words.get();  // one space, then the name, which may have more of them
    Entry entry;
    std::getline(words, entry.name);
    entry.needs_index = kind == "old";
    if (!inode.empty()) entry.identity = inode + " " + mtime;
    const bool proven = entry.identity || (kind == "made" && entry.name.starts_with(stem + "-" + id + "-"));
    if (proven && is_shard_name(stem, entry.name)) entries.push_back(std::move(entry));
  }
  return entries;
}

// The journals of saves that are over, and whether other saves are still running.
struct Journals {
  std::vector<Journal> over;
  bool others = false;
};

// Only our own journals and root's are believed: nobody else can make us remove files.
bool is_trusted(const struct stat& status) {
  return S_ISREG(status.st_mode) && (status.st_uid == ::geteuid() || status.st_uid == 0);
}

void look_at(const std::string& path, const Author& author, const ShardSite& site, const std::string& own,
             io::FileOps& ops, Journals& found) {
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const int fd = io::open_fork_closed(path, kFlags, 0, ops);
  if (fd < 0) return;
  Journal journal(path, fd, ops);
  try {
    struct stat status;
    if (io::retry_interrupted([&] { return ops.fstat(fd, &status); }) != 0) {
      throw io::io_error(errno, "cannot get the size", path);
    }
    const bool is_own = author.id == own && author.host == io::host_id();
    if (!is_own && !io::writer_is_gone(fd, author.host, ops)) {
      found.others = true;
    } else if (is_own || is_trusted(status)) {
      std::string text(std::min<std::uint64_t>(static_cast<std::uint64_t>(status.st_size), kMaxJournalBytes), '\0');
      text.resize(io::read_up_to(ops, fd, std::as_writable_bytes(std::span(text)), 0, path));
      journal.entries = parse(text, site.stem, author.id);
      found.over.push_back(std::move(journal));
    }
  } catch (const Error&) {
    // A journal that cannot be read now is left to the next save.
  }
}

Journals find_journals(const ShardSite& site, const std::string& own, io::FileOps& ops) {
  Journals found;
  for (const std::string& name : io::list_directory(site.directory, ops)) {
    if (const auto author = author_of(name, site.stem)) {
      look_at(site.path_of(name), *author, site, own, ops, found);
    }
  }
  return found;
}

// Returns whether nothing superfluous is left of the entry.
bool remove_superfluous(const Entry& entry, const ShardSite& site, io::FileOps& ops) {
  const std::string path = site.path_of(entry.name);
  if (entry.identity && identity_of(path, ops) != entry.identity) return true;
  return io::retry_interrupted([&] { return ops.unlink(path.c_str()); }) == 0 || errno == ENOENT;
}

}  // namespace

bool is_journal_name(std::string_view name) { return name.starts_with('.') && name.ends_with(kSuffix); }

ShardSite site_of_index(const std::filesystem::path& index_path) {
  const std::string name = index_path.filename().string();
  if (!name.ends_with(kIndexSuffix) || name.size() == kIndexSuffix.size()) {
    throw Error(ErrorCode::kInvalidArgument, "the name of a shard index ends in '" + std::string(kIndexSuffix) +
                                                 "', such as model.safetensors.index.json");
  }
  const std::filesystem::path directory = index_path.parent_path();
  return {index_path, directory.empty() ? "." : directory.native(), name.substr(0, name.size() - kIndexSuffix.size())};
}

IndexedFiles read_indexed_files(const ShardSite& site, io::FileOps& ops) {
  IndexedFiles files;
  try {
    const std::string text = io::read_text_file(site.index, Limits().safetensors_index_bytes, ops);
    const TextMap map = safetensors::parse_index(text).weight_map;
    for (std::size_t i = 0; i < map.size(); ++i) files.names.emplace(map.value(i));
    files.state = IndexedFiles::State::kRead;
  } catch (const Error& error) {
    if (error.os_errno() == ENOENT) {
      files.state = IndexedFiles::State::kNone;
    } else if (error.code() == ErrorCode::kIo) {
      throw;
    }
  }
  return files;
}

ShardJournal::ShardJournal(const ShardSite& site, io::FileOps& ops) : site_(site), ops_(ops) {
  create();
  unwritten_ = kFirstLine;
}

void ShardJournal::create() {
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    id_ = io::random_digits(kSetIdDigits);
    path_ = site_.path_of(journal_prefix(site_.stem) + io::host_id() + "-" + id_ + std::string(kSuffix));
    fd_ = io::open_fork_closed(path_, kFlags, 0666, ops_);
    if (fd_ < 0) {
      if (errno == EEXIST) continue;
      throw io::io_error(errno, "cannot create the journal of the save", path_);
    }
    // Where locks do not work, nobody takes this save for dead before its journal is old.
    const bool locked = io::retry_interrupted([&] { return ops_.flock(fd_, LOCK_EX | LOCK_NB); }) == 0;
    const bool contended = !locked && errno == EWOULDBLOCK;
    // Another save may have found the journal before it was locked, and removed it.
    if (!contended && io::names_open_file(path_, fd_, ops_)) return;
    remove();
  }
  throw Error(ErrorCode::kConflict, "other processes keep removing the journal of the save").in_file(path_);
}

void ShardJournal::add(const char* kind, const std::string& name, const std::string& current) {
  if (const auto identity = identity_of(site_.path_of(current), ops_)) {
    unwritten_ += std::string(kind) + " " + *identity + " " + name + "\n";
  }
}

void ShardJournal::add_made(const std::string& name) { unwritten_ += "made " + name + "\n"; }
void ShardJournal::add_renamed(const std::string& name, const std::string& current) { add("renamed", name, current); }
void ShardJournal::add_old(const std::string& name) { add("old", name, name); }
void ShardJournal::add_removed(const std::string& name) { add("removed", name, name); }

void ShardJournal::flush(bool durable) {
  io::write_fully(ops_, fd_, {reinterpret_cast<const std::byte*>(unwritten_.data()), unwritten_.size()}, size_, path_);
  size_ += unwritten_.size();
  unwritten_.clear();
  if (durable && io::retry_interrupted([&] { return ops_.fsync(fd_); }) != 0) {
    throw io::io_error(errno, "cannot sync the journal of the save", path_);
  }
}

void ShardJournal::touch() {
  io::write_fully(ops_, fd_, {reinterpret_cast<const std::byte*>(kFirstLine.data()), kFirstLine.size()}, 0, path_);
}

void ShardJournal::release() noexcept {
  const int fd = std::exchange(fd_, -1);
  // A forked child has closed the descriptor already.
  if (fd >= 0 && ::getpid() == process_) io::close_fork_closed(fd, ops_);
}

void ShardJournal::remove() noexcept {
  if (::getpid() != process_) return;
  io::retry_interrupted([&] { return ops_.unlink(path_.c_str()); });
  release();
}

void settle_journals(const ShardSite& site, const std::string& own, io::FileOps& ops) noexcept {
  try {
    const Journals found = find_journals(site, own, ops);
    if (found.over.empty()) return;
    // After the journals: the index is then at least as new as any of these saves left it.
    const IndexedFiles indexed = read_indexed_files(site, ops);
    if (indexed.state == IndexedFiles::State::kUnknown) return;
    for (const Journal& journal : found.over) {
      bool clean = true;
      bool in_use = false;
      for (const Entry& entry : journal.entries) {
        const bool named = indexed.names.contains(entry.name);
        in_use |= named;
        const bool superfluous = !named && (indexed.state == IndexedFiles::State::kRead || !entry.needs_index);
        if (superfluous) clean &= remove_superfluous(entry, site, ops);
      }
      if (clean && !(in_use && found.others)) journal.remove();
    }
  } catch (...) {
  }
}

}  // namespace weightstore
