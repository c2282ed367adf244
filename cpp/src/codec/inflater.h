#pragma once

// The decoder behind the functions of inflate.h. It stops between two symbols, and goes on from there.

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codec/deflate_codes.h"
#include "codec/inflate.h"
#include "weightstore/error.h"

namespace weightstore::deflate {

[[noreturn]] inline void fail(const char* what) {
  throw Error(ErrorCode::kCorrupt, std::string("the compressed data is damaged: ") + what);
}

// Where the compressed bytes come from.
class Input {
 public:
  explicit Input(ConstBytes bytes) : bytes_(bytes) {}
  Input(const Deflated& compressed, std::size_t buffer_bytes)
      : source_(&compressed.source), next_(compressed.begin), end_(compressed.end), buffer_(buffer_bytes) {}

  // The next byte, or nullopt at the end.
  std::optional<std::byte> next() {
    if (at_ == bytes_.size() && !refill()) return std::nullopt;
    return bytes_[at_++];
  }
  // At most `most` bytes that follow; none at the end.
  ConstBytes take(std::size_t most) {
    if (at_ == bytes_.size() && !refill()) return {};
    const ConstBytes taken = bytes_.subspan(at_, std::min(most, bytes_.size() - at_));
    at_ += taken.size();
    return taken;
  }
  bool at_end() const { return at_ == bytes_.size() && next_ == end_; }

  // Of an input over a source.
  std::uint64_t position() const { return next_ - (bytes_.size() - at_); }
  void go_to(std::uint64_t position) {
    next_ = position;
    bytes_ = {};
    at_ = 0;
  }

 private:
  bool refill() {
    const std::uint64_t size = std::min<std::uint64_t>(end_ - next_, buffer_.size());
    if (size == 0) return false;
    const MutableBytes filled = MutableBytes(buffer_).first(static_cast<std::size_t>(size));
    source_->read_at(next_, filled);
    next_ += size;
    bytes_ = filled;
    at_ = 0;
    return true;
  }

  ConstBytes bytes_;
  std::size_t at_ = 0;
  const ByteSource* source_ = nullptr;
  std::uint64_t next_ = 0;  // in the source: behind `bytes_`
  std::uint64_t end_ = 0;
  std::vector<std::byte> buffer_;
};

// What there is to know between two symbols, beside the bytes that copies may reach.
struct BlockState {
  enum class Kind : std::uint8_t { kNone, kStored, kFixed, kDynamic, kEnd };
  Kind kind = Kind::kNone;  // of the block that is being read
  bool last = false;
  std::size_t stored_left = 0;
  std::uint64_t bits = 0;  // taken from the input and not used; the next is lowest
  unsigned bit_count = 0;
  Codes codes;  // of the last dynamic block
};

// Decodes into a buffer, in which copies find what came before.
class Inflater {
 public:
  Inflater(Input input, MutableBytes out) : input_(std::move(input)), out_(out) {}

  // Goes on until `enough` bytes of the buffer are filled, or a few more, or the data ends. Throws when the buffer ends
  // before the data and before `enough`.
  void run(std::size_t enough) {
    while (filled_ < enough && block_.kind != BlockState::Kind::kEnd) {
      switch (block_.kind) {
        case BlockState::Kind::kStored:
          copy_stored(enough);
          break;
        case BlockState::Kind::kFixed:
          decode_symbols(enough, kFixedCodes, &kFastFixedCodes);
          break;
        case BlockState::Kind::kDynamic:
          decode_symbols(enough, block_.codes, fast_is_built_ ? &fast_ : nullptr);
          break;
        default:
          begin_block();
      }
    }
  }

  bool at_end() const { return block_.kind == BlockState::Kind::kEnd; }
  // At the end: whether the input has more than the data.
  bool has_more_input() const { return block_.bit_count >= 8 || !input_.at_end(); }

  std::size_t filled() const { return filled_; }
  // Keeps the last `count` bytes of the buffer, at its beginning.
  void keep(std::size_t count) {
    std::memmove(out_.data(), out_.data() + filled_ - count, count);
    filled_ = count;
  }

  const BlockState& block() const { return block_; }
  std::uint64_t input_position() const { return input_.position(); }
  void restore(const BlockState& block, std::uint64_t input_position, ConstBytes history) {
    block_ = block;
    fast_is_built_ = false;
    symbols_ = 0;
    input_.go_to(input_position);
    std::copy(history.begin(), history.end(), out_.begin());
    filled_ = history.size();
  }

 private:
  void top_up() {
    while (block_.bit_count <= 48) {
      const auto byte = input_.next();
      if (!byte) return;
      block_.bits |= std::to_integer<std::uint64_t>(*byte) << block_.bit_count;
      block_.bit_count += 8;
    }
  }

  unsigned take(unsigned count) {
    if (block_.bit_count < count) {
      top_up();
      if (block_.bit_count < count) fail("it ends too early");
    }
    const auto value = static_cast<unsigned>(block_.bits & ((1u << count) - 1));
    block_.bits >>= count;
    block_.bit_count -= count;
    return value;
  }

  unsigned decode(const Code& code, const FastCode* fast) {
    if (fast != nullptr) {
      if (block_.bit_count < kMaxBits) top_up();
      const std::uint16_t entry = fast->entries[block_.bits & ((1u << kFastBits) - 1)];
      const unsigned length = entry & 15;
      if (length != 0 && length <= block_.bit_count) {
        block_.bits >>= length;
        block_.bit_count -= length;
        return entry >> 4;
      }
    }
    int value = 0;
    int first = 0;
    int index = 0;
    for (std::size_t bits = 1; bits <= kMaxBits; ++bits) {
      value |= static_cast<int>(take(1));
      const int count = code.counts[bits];
      if (value - count < first) return code.symbols[static_cast<std::size_t>(index + value - first)];
      index += count;
      first = (first + count) << 1;
      value <<= 1;
    }
    fail("a code that does not exist");
  }

  // Where the next `count` bytes go.
  std::byte* put(std::size_t count) {
    if (count > out_.size() - filled_) fail("it is longer than the archive says");
    filled_ += count;
    return out_.data() + filled_ - count;
  }

  void begin_block() {
    if (block_.last) {
      block_.kind = BlockState::Kind::kEnd;
      return;
    }
    block_.last = take(1) != 0;
    switch (take(2)) {
      case 0:
        begin_stored();
        break;
      case 1:
        block_.kind = BlockState::Kind::kFixed;
        break;
      case 2:
        read_codes();
        break;
      default:
        fail("a block of a kind that does not exist");
    }
  }

  void begin_stored() {
    take(block_.bit_count % 8);
    const unsigned length = take(16);
    if (take(16) != (~length & 0xFFFF)) fail("a block's length and its complement differ");
    block_.stored_left = length;
    block_.kind = BlockState::Kind::kStored;
  }

  void copy_stored(std::size_t enough) {
    while (block_.stored_left > 0 && filled_ < enough) {
      if (block_.bit_count > 0) {
        const auto byte = static_cast<std::byte>(take(8));
        *put(1) = byte;
        --block_.stored_left;
        continue;
      }
      const ConstBytes bytes = input_.take(std::min(block_.stored_left, enough - filled_));
      if (bytes.empty()) fail("it ends too early");
      std::copy(bytes.begin(), bytes.end(), put(bytes.size()));
      block_.stored_left -= bytes.size();
    }
    if (block_.stored_left == 0) block_.kind = BlockState::Kind::kNone;
  }

  void read_codes() {
    const std::size_t literal_count = take(5) + 257;
    const std::size_t distance_count = take(5) + 1;
    const std::size_t code_count = take(4) + 4;
    if (literal_count > kMaxLiterals || distance_count > kMaxDistances) fail("more codes than there are");
    std::array<std::uint8_t, 19> code_lengths{};
    for (std::size_t i = 0; i < code_count; ++i) code_lengths[kCodeOrder[i]] = static_cast<std::uint8_t>(take(3));
    Code code;
    if (!code.build(code_lengths, false)) fail("an impossible code");
    std::array<std::uint8_t, kMaxLiterals + kMaxDistances> lengths{};
    for (std::size_t i = 0; i < literal_count + distance_count;) {
      const unsigned symbol = decode(code, nullptr);
      if (symbol < 16) {
        lengths[i++] = static_cast<std::uint8_t>(symbol);
        continue;
      }
      if (symbol == 16 && i == 0) fail("a repetition of nothing");
      const std::uint8_t value = symbol == 16 ? lengths[i - 1] : std::uint8_t{0};
      std::size_t count = symbol == 16 ? 3 + take(2) : symbol == 17 ? 3 + take(3) : 11 + take(7);
      if (count > literal_count + distance_count - i) fail("a repetition beyond the end");
      for (; count > 0; --count) lengths[i++] = value;
    }
    if (lengths[256] == 0) fail("a block without an end");
    const std::span<const std::uint8_t> all(lengths);
    if (!block_.codes.literals.build(all.first(literal_count))) fail("an impossible code");
    if (!block_.codes.distances.build(all.subspan(literal_count, distance_count))) fail("an impossible code");
    block_.kind = BlockState::Kind::kDynamic;
    fast_is_built_ = false;
    symbols_ = 0;
  }

  void decode_symbols(std::size_t enough, const Codes& codes, const FastCodes* fast) {
    while (filled_ < enough) {
      if (fast == nullptr && ++symbols_ > kSymbolsBeforeTables) {
        fast_.build(codes);
        fast_is_built_ = true;
        fast = &fast_;
      }
      unsigned symbol = decode(codes.literals, fast != nullptr ? &fast->literals : nullptr);
      if (symbol < 256) {
        *put(1) = static_cast<std::byte>(symbol);
        continue;
      }
      if (symbol == 256) {
        block_.kind = BlockState::Kind::kNone;
        return;
      }
      symbol -= 257;
      if (symbol >= kLengthBase.size()) fail("a length that does not exist");
      const std::size_t length = kLengthBase[symbol] + take(kLengthBits[symbol]);
      const unsigned far = decode(codes.distances, fast != nullptr ? &fast->distances : nullptr);
      if (far >= kDistanceBase.size()) fail("a distance that does not exist");
      const std::size_t distance = kDistanceBase[far] + take(kDistanceBits[far]);
      if (distance > filled_) fail("a copy from before its beginning");
      copy(put(length), distance, length);
    }
  }

  // What is copied may be what was just written.
  static void copy(std::byte* to, std::size_t distance, std::size_t length) {
    if (distance >= length) {
      std::memcpy(to, to - distance, length);
    } else if (distance == 1) {
      std::memset(to, std::to_integer<int>(to[-1]), length);
    } else {
      for (std::size_t i = 0; i < length; ++i) to[i] = *(to + i - distance);
    }
  }

  Input input_;
  const MutableBytes out_;
  std::size_t filled_ = 0;
  BlockState block_;
  FastCodes fast_;  // of the dynamic block, once it is long enough
  bool fast_is_built_ = false;
  unsigned symbols_ = 0;  // of the dynamic block, without tables
};

}  // namespace weightstore::deflate
