#include "formats/numpy/member_checks.h"

#include <algorithm>
#include <optional>
#include <string>

#include "codec/zip_directory.h"
#include "formats/member_checksums.h"

namespace weightstore::numpy {
namespace {

// Where the tensor begins in the file, or where its member begins.
std::optional<std::uint64_t> position_of(const MemberPlaces& places, const TensorTable& table, std::size_t tensor) {
  if (table.source_of(tensor) == 0) return table.begin(tensor);
  const std::pair source(table.sources()[table.source_of(tensor)].get(), std::uint64_t{0});
  const auto place = std::lower_bound(places.begin(), places.end(), source);
  if (place == places.end() || place->first != source.first) return std::nullopt;
  return place->second;
}

}  // namespace

std::shared_ptr<const Checksums> read_member_checks(const ByteSource& file, const Limits& limits,
                                                    std::shared_ptr<const MemberPlaces> places) {
  const ZipDirectory directory = ZipDirectory::read(file, {.records = limits.zip_records});
  std::vector<MemberChecksums::Member> members;
  for (std::size_t i = 0; i < directory.size(); ++i) {
    const ZipRecord& record = directory[i];
    if (!record.name.ends_with(".npy")) continue;
    const auto crc = record.has_crc() ? std::optional(record.crc) : std::nullopt;
    members.push_back({std::string(record.name), record.begin, record.end(), record.size, crc, record.deflated});
  }
  return std::make_shared<MemberChecksums>(
      "array", std::move(members),
      [places](const TensorTable& table, std::size_t tensor) { return position_of(*places, table, tensor); });
}

}  // namespace weightstore::numpy
