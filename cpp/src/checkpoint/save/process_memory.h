#pragma once

// What a process remembers of the saves that were given no attempt. Nothing of it is on disk: a process that was
// started again, or forked, begins anew.

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace weightstore::checkpoint {

// Thread-safe.
class ProcessMemory {
 public:
  // One shard of the saves of a run into a directory.
  struct Place {
    std::string directory;
    std::string run;
    std::uint64_t shard = 0;
    std::uint64_t shard_num = 0;

    auto operator<=>(const Place&) const = default;
  };

  ProcessMemory();

  // Of this process. A forked child does not get its parent's.
  static ProcessMemory& current();

  // A random id of this process.
  const std::string& id() const { return id_; }
  // What came before a save.
  struct Before {
    std::uint64_t saves = 0;
    std::uint64_t missed = 0;  // saves that have not succeeded
    std::string leader;        // the process of shard 0 that this shard has saved with; empty: none
  };

  // Counts a save that begins.
  Before begin(const Place& place);
  // It has succeeded.
  void succeeded(const Place& place);
  void set_leader(const Place& place, const std::string& process);

 private:
  const std::string id_;
  std::mutex mutex_;
  std::map<Place, Before> entries_;
};

// For tests that play several processes in one: `memory` is the calling thread's while this object lives.
class ScopedProcess {
 public:
  explicit ScopedProcess(ProcessMemory& memory);
  ~ScopedProcess();
  ScopedProcess(const ScopedProcess&) = delete;
  ScopedProcess& operator=(const ScopedProcess&) = delete;
};

}  // namespace weightstore::checkpoint
