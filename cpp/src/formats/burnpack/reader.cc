// Three layouts share one magic and one version. 0.19 puts the data right behind the metadata, without alignment; 0.20
// and later align it. Which one a file has shows only in its length: the tensors must end where the file does.

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/corrupt.h"
#include "base/little_endian.h"
#include "formats/burnpack/constants.h"
#include "formats/burnpack/metadata.h"
#include "formats/header_text.h"
#include "weightstore/burnpack.h"
#include "weightstore/error.h"

namespace weightstore::burnpack {
namespace {

// Checks the ten bytes; returns the end of the metadata.
std::uint64_t read_header(const ByteSource& source, const Limits& limits) {
  const std::uint64_t size = source.size();
  if (size > limits.burnpack_file_bytes) {
    throw Error(ErrorCode::kLimit, "a file of " + std::to_string(size) + " bytes; the limit is " +
                                       std::to_string(limits.burnpack_file_bytes));
  }
  if (size < kHeaderBytes) {
    throw corrupt("a file of " + std::to_string(size) + " bytes has no room for the header of " +
                  std::to_string(kHeaderBytes));
  }
  std::array<std::byte, kHeaderBytes> header;
  source.read_at(0, header);
  if (load_little_endian<std::uint32_t>(&header[0]) != kMagic) throw corrupt("does not begin with 'NRUB'").at_offset(0);
  const auto version = load_little_endian<std::uint16_t>(&header[4]);
  if (version > kVersion) {
    throw Error(ErrorCode::kUnsupported, "Burnpack version " + std::to_string(version) +
                                             "; this library reads versions up to " + std::to_string(kVersion))
        .at_offset(4);
  }
  const auto metadata_bytes = load_little_endian<std::uint32_t>(&header[6]);
  if (metadata_bytes > limits.burnpack_metadata_bytes) {
    throw Error(ErrorCode::kLimit, "metadata of " + std::to_string(metadata_bytes) + " bytes; the limit is " +
                                       std::to_string(limits.burnpack_metadata_bytes))
        .at_offset(6);
  }
  const std::uint64_t end = kHeaderBytes + std::uint64_t{metadata_bytes};
  if (end > size) {
    throw corrupt("truncated: the metadata ends at byte " + std::to_string(end) + ", the file has " +
                  std::to_string(size))
        .at_offset(6);
  }
  return end;
}

bool all_zero(const ByteSource& source, std::uint64_t begin, std::uint64_t end) {
  std::array<std::byte, kAlignment> bytes;
  const auto range = MutableBytes(bytes).first(static_cast<std::size_t>(end - begin));
  source.read_at(begin, range);
  return std::all_of(range.begin(), range.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Whether a file whose length says 0.19 is not an aligned file that lost its end. Any of three things tells them apart:
// the file says its release; a tensor does not begin on a multiple of 256, which no later release writes; or tensors
// without gaps begin where an aligned file has zeros up to its data section.
//
// Files of 0.19 can have gaps: 0.19 gives all parts of a tuple one name, and the index keeps only the last of them.
bool is_packed(const ByteSource& source, const Metadata& metadata, std::uint64_t metadata_end,
               std::uint64_t data_begin) {
  if (metadata_end + metadata.data_length != source.size()) return false;
  const auto version = metadata.table.metadata().find("version");
  if ((version && version->starts_with("0.19.")) || metadata.misaligned) return true;
  if (metadata.tensor_bytes != metadata.data_length) return false;
  return !all_zero(source, metadata_end, std::min(data_begin, source.size()));
}

[[noreturn]] void fail_truncated(const Metadata& metadata, std::uint64_t data_begin, std::uint64_t size) {
  const std::uint64_t end = data_begin + metadata.data_length;
  Error error =
      corrupt("truncated: data ends at byte " + std::to_string(end) + ", the file has " + std::to_string(size));
  const TensorTable& table = metadata.table;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.begin(i) + table.nbytes(i) != end) continue;
    error.in_tensor(table.name(i));
    break;
  }
  throw error;
}

// The table is in the order of the ranges.
void check_disjoint(const TensorTable& table) {
  std::optional<std::size_t> last;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.nbytes(i) == 0) continue;
    if (last && table.begin(i) < table.begin(*last) + table.nbytes(*last)) {
      throw corrupt("shares bytes with tensor '" + std::string(table.name(*last)) + "'")
          .in_tensor(table.name(i))
          .at_offset(table.begin(i));
    }
    last = i;
  }
}

// The oldest release that spells everything in the file as the file does.
BurnRelease oldest_reader(const Metadata& metadata) {
  if (metadata.has_new_scheme) return BurnRelease::k022;
  return metadata.has_bool_map ? BurnRelease::k021 : BurnRelease::k020;
}

// The release that the metadata name: Burn's stores write their version, ours the release they write for.
std::optional<BurnRelease> named_release(const TextMap& metadata) {
  const auto producer = metadata.find("producer");
  if (!producer) return std::nullopt;
  const auto version = metadata.find(*producer == "burn" ? "version" : "burn");
  if (!version || (*producer != "burn" && *producer != "weightstore")) return std::nullopt;
  return burn_release_from_name(*version);
}

// The release that the file was written for, if its metadata or its contents tell. What is named counts only if that
// release spells the contents as the file does.
std::optional<BurnRelease> release_of(const Metadata& metadata) {
  const BurnRelease oldest = oldest_reader(metadata);
  const BurnRelease newest = metadata.has_plain_bool   ? BurnRelease::k020
                             : metadata.has_old_scheme ? BurnRelease::k021
                                                       : BurnRelease::k023;
  const auto named = named_release(metadata.table.metadata());
  if (named && *named >= oldest && *named <= newest) return named;
  if (oldest == BurnRelease::k020 && newest == BurnRelease::k023) return std::nullopt;
  return oldest;
}

TensorTable read(std::shared_ptr<const ByteSource> source, const Limits& limits) {
  const std::uint64_t metadata_end = read_header(*source, limits);
  const HeaderText cbor =
      read_header_text(*source, kHeaderBytes, static_cast<std::size_t>(metadata_end - kHeaderBytes));
  const std::uint64_t data_begin = *checked_round_up(metadata_end, kAlignment);
  Metadata metadata = parse_metadata(cbor, kHeaderBytes, data_begin, limits);
  const std::optional<BurnRelease> release = release_of(metadata);
  std::string dialect(name_of(oldest_reader(metadata)));
  if (data_begin + metadata.data_length > source->size()) {
    if (!is_packed(*source, metadata, metadata_end, data_begin)) fail_truncated(metadata, data_begin, source->size());
    // Rare enough to be parsed again.
    metadata = parse_metadata(cbor, kHeaderBytes, metadata_end, limits);
    dialect = "0.19";
  } else if (metadata.has_new_scheme && release != kNewestStableBurn) {
    // Also rare: a file of a preview, with quantized tensors.
    metadata = parse_metadata(cbor, kHeaderBytes, data_begin, limits, *release);
  }
  TensorTable table = std::move(metadata.table);
  table.add_source(std::move(source));
  table.set_dialect(std::move(dialect));
  table.set_burn_release(release);
  table.finish();
  check_disjoint(table);
  return table;
}

}  // namespace

TensorTable read_table(std::shared_ptr<const ByteSource> source, const Limits& limits) {
  try {
    return read(std::move(source), limits);
  } catch (Error& error) {
    error.of_format(Format::kBurnpack);
    throw;
  }
}

}  // namespace weightstore::burnpack
