#pragma once

// How the ranks of one machine write short runs of a file as whole blocks.
//
// A matrix that is sharded by columns leaves each rank with many short runs of the file. The ranks copy their runs into
// blocks of shared memory instead, and each block is written at once:
//
//  1. The bytes that the ranks have together are cut into blocks of up to 4 MiB, which all ranks number alike. Block i
//     uses slot i % slots of the shared memory.
//  2. A rank goes through its blocks in ascending order. It waits until the slot is free for the block, that is until
//     block i - slots was written, copies its bytes into the slot, and adds their number to the count of the block.
//  3. The rank that completes the count writes the block, and frees the slot for block i + slots.
//
// All ranks go through their blocks in the same order, so the block with the lowest number that is not written has its
// slot, and each rank comes to it without waiting for a later one. When a rank fails it sets a flag; when its process
// ends, the others see that by its pidfd. Then those that wait throw.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "io/parallel.h"
#include "io/memory/shared_memory.h"
#include "weightstore/byte_source.h"

namespace weightstore {

// Bytes [begin, end) of a tensor, which the members of an exchange have together. Their blocks are cut where the offset
// in the file is a multiple of 4 MiB, and numbered from `first_block` on.
struct SharedRange {
  std::uint64_t first_block = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// What one rank does in an exchange. Thread-safe.
class BoxExchange {
 public:
  // Another process of the exchange: its rank, and a descriptor of pidfd_open(2), which the caller closes.
  struct Peer {
    std::uint32_t rank = 0;
    int pidfd = -1;
  };

  // What memory the exchange of `blocks` blocks between `members` ranks needs.
  static std::size_t memory_bytes(unsigned members, std::uint64_t blocks);

  // `fd` has zeroed memory of memory_bytes(), the same for all members.
  BoxExchange(int fd, std::uint32_t rank, unsigned members, std::uint64_t blocks, std::vector<Peer> peers,
              std::chrono::milliseconds timeout);

  // Waits until the slot of a block is free for it. Empty if `stop` was set meanwhile. Throws Error(kIo) when another
  // member has failed or ended, and when nothing happens for the time of the timeout.
  MutableBytes enter(std::uint64_t block, const io::StopFlag& stop);
  // This rank has copied `bytes` of a block of `size` bytes. True if that completes it: then the caller writes the
  // block and calls leave().
  bool add(std::uint64_t block, std::uint64_t bytes, std::uint64_t size);
  void leave(std::uint64_t block);

  // Tells all members that this one cannot go on.
  void fail() noexcept;
  // Waits until all members have the memory; then its descriptor may be closed. Throws as enter() does.
  void wait_for_all();

 private:
  using Word = std::atomic<std::uint32_t>;
  struct Header {
    Word attached;
    Word failed;  // rank + 1
  };

  void wait_for_change(Word& word, std::uint32_t value, std::chrono::steady_clock::time_point deadline) const;
  Word& turn(std::uint64_t block) const { return turns_[block % slots_]; }

  const std::uint32_t rank_;
  const unsigned members_;
  const std::uint64_t slots_;
  const std::vector<Peer> peers_;
  const std::chrono::milliseconds timeout_;
  io::SharedMemory memory_;
  Header* header_;
  std::span<Word> turns_;   // of each slot: how many blocks have left it
  std::span<Word> counts_;  // of each block: the bytes that are there
  std::byte* first_slot_;
};

}  // namespace weightstore
