#pragma once

// What a process remembers of its saves that had no attempt. Nothing of it is on disk: a process that was restarted or
// forked starts with an empty history.

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace weightstore::checkpoint {

// Thread-safe.
class SaveHistory {
 public:
  // One shard of the saves of one run into one directory.
  struct Series {
    std::string directory;
    std::string run;
    std::uint64_t shard = 0;
    std::uint64_t shard_num = 0;

    auto operator<=>(const Series&) const = default;
  };

  SaveHistory();

  // The history of this process. A forked child gets a new one.
  static SaveHistory& current();

  // A random id of this process.
  const std::string& process_id() const { return process_id_; }

  // The saves of a series before the one that begins.
  struct Past {
    std::uint64_t saves = 0;
    std::uint64_t missed = 0;  // saves that did not succeed
    std::string leader;        // process_id() of the shard 0 that this shard has saved with; empty when it never has
  };

  // Counts a save that begins. The save counts as missed until succeeded() is called.
  Past begin(const Series& series);
  void succeeded(const Series& series);
  void set_leader(const Series& series, const std::string& process_id);

 private:
  const std::string process_id_;
  std::mutex mutex_;
  std::map<Series, Past> entries_;
};

// For tests that simulate several processes in one: while this object lives, SaveHistory::current() on the calling
// thread is `history`.
class ScopedSaveHistory {
 public:
  explicit ScopedSaveHistory(SaveHistory& history);
  ~ScopedSaveHistory();
  ScopedSaveHistory(const ScopedSaveHistory&) = delete;
  ScopedSaveHistory& operator=(const ScopedSaveHistory&) = delete;
};

}  // namespace weightstore::checkpoint
