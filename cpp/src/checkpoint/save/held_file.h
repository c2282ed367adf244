#pragma once

// Files that show that a process is alive: the lock of a directory, and the token of a save (session.h).
//
//  - The owner holds flock(2) on the file. The system releases the lock when the owner dies.
//  - The owner also changes the last bytes of the file ten times a second, its heartbeat. Some file systems show a lock
//    only on the owner's host (Lustre with -o localflock, NFS with local_lock=flock). There, others recognise a living
//    owner by its heartbeat.
//  - A forked child closes its copies of these files, so that a child that outlives the owner does not keep its locks.
//    No fork can come between the opening of a file and the moment when the child would know of it. In a child, a
//    HeldFile of the parent does nothing: neither the descriptor nor the thread of the heartbeat is there.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "io/file_ops.h"

namespace weightstore::checkpoint {

inline constexpr auto kHeartbeat = std::chrono::milliseconds(100);

// What others read in a held file.
struct HeldText {
  std::string text;
  std::string beat;     // differs after every heartbeat
  bool locked = false;  // somebody holds the lock, as far as this host can see
};

// A regular file that this process holds. Destroyed with the object. Thread-compatible.
class HeldFile {
 public:
  // Locks `path`, and creates it where it is missing. Throws Error(kConflict) when another process holds it. Where a
  // host that is not this one left the file, this call waits up to two seconds for a heartbeat.
  static HeldFile lock(const std::filesystem::path& path, io::FileOps& ops);
  // Replaces whatever is at `path` by a locked file with this text.
  static HeldFile publish(const std::filesystem::path& path, std::string_view text, io::FileOps& ops);

  HeldFile(HeldFile&& other) noexcept;
  HeldFile& operator=(HeldFile&&) = delete;
  ~HeldFile();

 private:
  class Owner;
  explicit HeldFile(std::unique_ptr<Owner> owner);

  std::unique_ptr<Owner> owner_;
};

// The file at `path`, when there is one that can be read.
std::optional<HeldText> look_at_held_file(const std::filesystem::path& path, io::FileOps& ops);

}  // namespace weightstore::checkpoint
