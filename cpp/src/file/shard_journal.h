#pragma once

// The journal of a save that makes, replaces or removes a shard set: which files become superfluous when the save ends,
// one way or the other. If the process dies, the next save of the name, be it a set or one file
// (Writer::write_file_or_shards), reads the journal and removes those files.
//
// The journal is `.<stem>.<host>-<id>.weightstore-set` beside the shards. The save holds a lock on it
// (io/locks/liveness.h). Each line describes one file:
//
//   made <name>                           a shard of this save; its name has the id, so nobody else made it
//   renamed <inode> <mtime> <name>        a whole shard of this save under its usual name
//   old <inode> <mtime> <name>            a shard of the set that this save replaces
//   removed <inode> <mtime> <name>        a shard of the set that this save removes, because one file takes its place
//
// Once a save is over, every file of its journal that the index does not name is superfluous. If the save died before
// its commit, the index names the old shards; after the commit it names the new ones; when yet another save has
// committed since, neither. Without any index, `old` shards stay: somebody else removed the index, perhaps to put it
// back. `removed` shards go even then, because the save itself was about to remove the index. A usual name may belong
// to somebody else by now: such a file is removed only if inode and time of modification (in nanoseconds) are still the
// same.

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_ops.h"

namespace weightstore {

// Where a set of shards lies.
struct ShardSite {
  std::filesystem::path index;  // as the caller gave it
  std::string directory;        // of the shards
  std::string stem;

  std::string path_of(const std::string& name) const { return directory + "/" + name; }
};
// Throws Error(kInvalidArgument) when the name does not end in kIndexSuffix.
ShardSite site_of_index(const std::filesystem::path& index_path);

// What the index at a site says.
struct IndexedFiles {
  enum class State : std::uint8_t { kNone, kRead, kUnknown };  // no file; an index; a file that is no index
  State state = State::kUnknown;
  std::set<std::string> names;  // of the files that it names
};
// Throws Error(kIo) when the file is there and cannot be read.
IndexedFiles read_indexed_files(const ShardSite& site, io::FileOps& ops);

// Thread-compatible. A forked child closes the journal (io/locks/fork_closed.h); there, the object of the parent does
// nothing.
class ShardJournal {
 public:
  // Creates the journal, under a new id, and locks it. Throws Error(kIo).
  ShardJournal(const ShardSite& site, io::FileOps& ops);
  ~ShardJournal() { release(); }  // leaves the journal to the next save
  ShardJournal(const ShardJournal&) = delete;
  ShardJournal& operator=(const ShardJournal&) = delete;

  const std::string& id() const { return id_; }  // kSetIdDigits digits

  // Each throws Error(kIo). Files that are not there are passed over by add_renamed(), add_old() and add_removed();
  // `current` is the name that a file has before it is renamed.
  void add_made(const std::string& name);
  void add_renamed(const std::string& name, const std::string& current);
  void add_old(const std::string& name);
  void add_removed(const std::string& name);
  void flush(bool durable);
  void touch();  // shows other hosts that this save is alive

  void release() noexcept;  // the save is over
  void remove() noexcept;   // the save is over and left nothing superfluous

 private:
  void create();
  void add(const char* kind, const std::string& name, const std::string& current);

  const ShardSite& site_;
  io::FileOps& ops_;
  std::string id_;
  std::string path_;
  std::string unwritten_;
  std::uint64_t size_ = 0;
  int fd_ = -1;
  const pid_t process_ = ::getpid();
};

// True for the name of a journal, of any set.
bool is_journal_name(std::string_view name);

// Removes the superfluous files of all saves of the set that are over: those whose process is gone, and the save `own`
// (an id; empty for none). Removes their journals, too, unless files could not be removed, or the index names files of
// the journal while another save is running: that save may replace the index without having seen it. Never throws.
void settle_journals(const ShardSite& site, const std::string& own, io::FileOps& ops) noexcept;

}  // namespace weightstore
