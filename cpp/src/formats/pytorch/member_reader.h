#pragma once

// Takes pickles and numbers off a member of a tar archive, one after the other.

#include <cstdint>
#include <optional>

#include "codec/memory_budget.h"
#include "codec/pickle_vm.h"
#include "formats/pytorch/tar_members.h"
#include "weightstore/byte_source.h"

namespace weightstore::pytorch {

// Reads ahead as long as the next entry is near, so that a member of very many small entries takes few system calls.
// Throws kCorrupt when the member ends too early.
class MemberReader {
 public:
  // All of them outlive the reader.
  MemberReader(const ByteSource& source, const TarMember& member, PickleParser& parser, MemoryBudget& memory)
      : source_(source),
        parser_(parser),
        position_(member.begin),
        end_(member.begin + member.size),
        window_begin_(member.begin),
        window_(memory) {}

  // Valid until anything else is taken.
  const PickleTree& pickle();
  // A pickled number of entries that follow.
  std::uint64_t count();
  // A little-endian number of at most eight bytes.
  std::uint64_t number(std::size_t bytes = 8);
  // Passes over `nbytes` and returns where they begin.
  std::uint64_t skip(std::optional<std::uint64_t> nbytes);
  void expect_end() const;

 private:
  // What has been read ahead from the position on.
  ConstBytes ahead() const;
  // Reads ahead `bytes`, or as many as there are.
  void fill(std::uint64_t bytes);

  const ByteSource& source_;
  PickleParser& parser_;
  std::uint64_t position_;
  const std::uint64_t end_;
  std::uint64_t window_begin_;
  ChargedVector<std::byte> window_;
  std::uint64_t read_size_ = 0;
};

}  // namespace weightstore::pytorch
