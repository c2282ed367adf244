#include "file/boxes/box_exchange.h"

#include <algorithm>
#include <string>
#include <utility>

#include "io/checked_io.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

constexpr std::chrono::milliseconds kLook{20};  // how often a waiting rank looks after the others
constexpr std::size_t kLine = 64;
// A block begins in its slot as it does in a page of the file.
constexpr std::size_t kSlotBytes = io::kChunkBytes + io::kDirectAlignment;

std::uint64_t slots_of(unsigned members) { return std::max<std::uint64_t>(4, 2 * std::uint64_t{members}); }

std::size_t slots_begin(unsigned members, std::uint64_t blocks) {
  const std::size_t words = (slots_of(members) + blocks) * sizeof(std::uint32_t);
  return (kLine + words + io::kDirectAlignment - 1) / io::kDirectAlignment * io::kDirectAlignment;
}

}  // namespace

std::size_t BoxExchange::memory_bytes(unsigned members, std::uint64_t blocks) {
  return slots_begin(members, blocks) + slots_of(members) * kSlotBytes;
}

BoxExchange::BoxExchange(int fd, std::uint32_t rank, unsigned members, std::uint64_t blocks, std::vector<Peer> peers,
                         std::chrono::milliseconds timeout)
    : rank_(rank),
      members_(members),
      slots_(slots_of(members)),
      peers_(std::move(peers)),
      timeout_(timeout),
      memory_(fd, memory_bytes(members, blocks)) {
  // Zeroed memory is the first state of all of this.
  std::byte* const memory = memory_.bytes().data();
  header_ = reinterpret_cast<Header*>(memory);
  turns_ = {reinterpret_cast<Word*>(memory + kLine), slots_};
  counts_ = {reinterpret_cast<Word*>(memory + kLine) + slots_, blocks};
  first_slot_ = memory + slots_begin(members, blocks);
  header_->attached.fetch_add(1, std::memory_order_relaxed);
  io::wake_all(header_->attached);
}

MutableBytes BoxExchange::enter(std::uint64_t block, const io::StopFlag& stop) {
  Word& left = turn(block);
  const auto wanted = static_cast<std::uint32_t>(block / slots_);
  auto deadline = std::chrono::steady_clock::now() + timeout_;
  for (std::uint32_t seen = left.load(std::memory_order_acquire); seen != wanted;) {
    if (stop.is_set()) return {};
    wait_for_change(left, seen, deadline);
    const std::uint32_t now = left.load(std::memory_order_acquire);
    if (now != seen) deadline = std::chrono::steady_clock::now() + timeout_;
    seen = now;
  }
  return {first_slot_ + block % slots_ * kSlotBytes, kSlotBytes};
}

bool BoxExchange::add(std::uint64_t block, std::uint64_t bytes, std::uint64_t size) {
  return counts_[block].fetch_add(static_cast<std::uint32_t>(bytes), std::memory_order_acq_rel) + bytes == size;
}

void BoxExchange::leave(std::uint64_t block) {
  turn(block).store(static_cast<std::uint32_t>(block / slots_ + 1), std::memory_order_release);
  io::wake_all(turn(block));
}

void BoxExchange::fail() noexcept {
  std::uint32_t none = 0;
  header_->failed.compare_exchange_strong(none, rank_ + 1);
  for (Word& left : turns_) io::wake_all(left);
  io::wake_all(header_->attached);
}

void BoxExchange::wait_for_all() {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  for (;;) {
    const std::uint32_t attached = header_->attached.load(std::memory_order_relaxed);
    if (attached >= members_) return;
    wait_for_change(header_->attached, attached, deadline);
  }
}

void BoxExchange::wait_for_change(Word& word, std::uint32_t value,
                                  std::chrono::steady_clock::time_point deadline) const {
  if (const std::uint32_t failed = header_->failed.load(std::memory_order_relaxed); failed != 0) {
    throw Error(ErrorCode::kIo, "rank " + std::to_string(failed - 1) + " has failed, so this rank cannot go on");
  }
  for (const Peer& peer : peers_) {
    if (!io::has_ended(peer.pidfd)) continue;
    throw Error(ErrorCode::kIo, "the process of rank " + std::to_string(peer.rank) + " has ended during the save");
  }
  if (std::chrono::steady_clock::now() >= deadline) {
    throw Error(ErrorCode::kIo, "another rank of this machine has done nothing for " +
                                    std::to_string(timeout_.count() / 1000) + " seconds");
  }
  io::wait_while_equal(word, value, kLook);
}

}  // namespace weightstore
