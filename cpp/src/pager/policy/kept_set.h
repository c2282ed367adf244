#pragma once

// Which tensors of a cycle stay in memory.

#include <cstdint>
#include <span>
#include <vector>

namespace weightstore::pager {

// Tensors smaller than this are kept first: to read one takes about as long as to read this many bytes.
inline constexpr std::uint64_t kSmallTensor = 128 << 10;

// For tensors that are acquired in `order` again and again: those to keep, by tensor, so that their charges are at most
// `room` together. Every byte that is kept saves one byte of reading a pass, whichever it is. What matters is where
// they are: they are spread evenly over the order by bytes, so that the disk is never idle for long while tensors in
// memory are used.
//
// Tensors that occur more often in the order are kept before others; so are small ones, as long as they take up at most
// an eighth of the room.
std::vector<bool> choose_kept(std::span<const std::uint32_t> order, std::span<const std::uint64_t> charges,
                              std::uint64_t room);

}  // namespace weightstore::pager
