#pragma once

// Leases: files that show that their owner is alive. A save has two: the lock of a directory, and the token of a save
// (token.h).
//
//  - The owner holds flock(2) on the file. The operating system releases the lock when the owner dies.
//  - The owner also writes a heartbeat, the last bytes of the file, ten times a second. Some file systems show a lock
//    only on the owner's host (Lustre with -o localflock, NFS with local_lock=flock). There, other hosts recognise a
//    living owner by its heartbeat.
//  - A forked child does not inherit a lease: the child closes the file (io/locks/fork_closed.h), and a Lease object of
//    the parent does nothing in the child.

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

// What another process reads in the file of a lease.
struct LeaseState {
  std::string text;
  std::string heartbeat;  // changes with every heartbeat
  bool locked = false;    // another process holds the lock, as far as this host can see
};

// The owner's side. The destructor stops the heartbeat, removes the file and releases the lock. Thread-compatible.
class Lease {
 public:
  // Locks `path`, and creates the file if it is missing. Throws Error(kConflict) when another process holds the lease.
  // If another host left the file, this call waits up to two seconds for a heartbeat of that host.
  static Lease acquire(const std::filesystem::path& path, io::FileOps& ops);
  // Replaces the file at `path`, if there is one, by a locked file with this text.
  static Lease publish(const std::filesystem::path& path, std::string_view text, io::FileOps& ops);

  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&&) = delete;
  ~Lease();

 private:
  class Owner;
  explicit Lease(std::unique_ptr<Owner> owner);

  std::unique_ptr<Owner> owner_;
};

// The state of the lease at `path`; nullopt when the file is missing or cannot be read.
std::optional<LeaseState> read_lease(const std::filesystem::path& path, io::FileOps& ops);

}  // namespace weightstore::checkpoint
