#include "formats/member_checksums.h"

#include <algorithm>
#include <utility>

#include "base/corrupt.h"
#include "codec/crc32.h"
#include "codec/inflate.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

constexpr std::uint64_t kPieceBytes = 256u << 10;

// The CRC of `size` bytes; fill(offset, piece) reads a piece of them.
template <class Fill>
std::uint32_t crc_of(std::uint64_t size, const Fill& fill) {
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(size, kPieceBytes)));
  std::uint32_t crc = 0;
  for (std::uint64_t done = 0; done < size; done += piece.size()) {
    piece.resize(static_cast<std::size_t>(std::min(size - done, kPieceBytes)));
    fill(done, MutableBytes(piece));
    crc = crc32(piece, crc);
  }
  return crc;
}

}  // namespace

MemberChecksums::MemberChecksums(std::string_view what, std::vector<Member> members, Position position_of)
    : what_(what),
      members_(std::move(members)),
      position_of_(std::move(position_of)),
      checked_(std::make_unique<std::atomic<bool>[]>(members_.size())) {}

std::optional<std::size_t> MemberChecksums::member_of(const TensorTable& table, std::size_t tensor) const {
  const auto position = position_of_(table, tensor);
  if (!position) return std::nullopt;
  const auto after = std::upper_bound(members_.begin(), members_.end(), *position,
                                      [](std::uint64_t at, const Member& member) { return at < member.begin; });
  if (after == members_.begin()) return std::nullopt;
  return static_cast<std::size_t>(after - members_.begin() - 1);
}

bool MemberChecksums::covers(const TensorTable& table, std::size_t tensor) const {
  if (table.nbytes(tensor) == 0) return true;
  const auto member = member_of(table, tensor);
  return member && members_[*member].crc;
}

bool MemberChecksums::needs_check(const TensorTable& table, std::size_t tensor) const {
  const auto member = member_of(table, tensor);
  return member && members_[*member].crc && !checked_[*member].load(std::memory_order_relaxed);
}

void MemberChecksums::check(const TensorTable& table, std::size_t tensor, const ConstBytes*) const {
  if (needs_check(table, tensor)) check_section(table, *member_of(table, tensor));
}

bool MemberChecksums::is_whole_section(const TensorTable& table, std::size_t tensor) const {
  if (table.source_of(tensor) != 0) return false;
  const auto member = member_of(table, tensor);
  const std::uint64_t begin = table.begin(tensor);
  return member && members_[*member].begin == begin && members_[*member].end == begin + table.nbytes(tensor) &&
         !members_[*member].deflated;
}

std::uint32_t MemberChecksums::extend(ConstBytes bytes, std::uint32_t crc) const { return crc32(bytes, crc); }

void MemberChecksums::compare(const TensorTable& table, std::size_t tensor, std::uint32_t crc) const {
  if (const auto member = member_of(table, tensor)) compare_member(*member, crc);
}

void MemberChecksums::require_all(const TensorTable& table) const {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (covers(table, i)) continue;
    const auto member = member_of(table, i);
    const std::string lacking = member ? what_ + " '" + printable(members_[*member].name) + "' has no checksum"
                                       : "the file carries no checksums";
    throw Error(ErrorCode::kUnsupported, lacking + " to verify; open it without full verification")
        .in_tensor(table.name(i));
  }
}

std::vector<Checksums::Section> MemberChecksums::sections(const TensorTable&) const {
  std::vector<Section> sections;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].crc && members_[i].size > 0) sections.push_back({i, members_[i].size, members_[i].name});
  }
  return sections;
}

void MemberChecksums::check_section(const TensorTable& table, std::size_t number) const {
  const Member& member = members_[number];
  const ByteSource& file = *table.sources()[0];
  std::uint32_t crc = 0;
  if (member.deflated) {
    InflateStream stream(Deflated{file, member.begin, member.end});
    crc = crc_of(member.size, [&](std::uint64_t, MutableBytes piece) { stream.read(piece); });
    stream.expect_end();
  } else {
    crc = crc_of(member.size, [&](std::uint64_t at, MutableBytes piece) { file.read_at(member.begin + at, piece); });
  }
  compare_member(number, crc);
}

void MemberChecksums::compare_member(std::size_t number, std::uint32_t crc) const {
  const Member& member = members_[number];
  if (crc != *member.crc) {
    throw corrupt("the bytes of " + what_ + " '" + printable(member.name) + "' have the CRC " + std::to_string(crc) +
                  ", the archive says " + std::to_string(*member.crc) + "; the file was damaged")
        .at_offset(member.begin);
  }
  checked_[number].store(true, std::memory_order_relaxed);
}

}  // namespace weightstore
