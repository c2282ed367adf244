#include "formats/pytorch/storage_checks.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/strided/strided_source.h"
#include "formats/member_checksums.h"
#include "formats/pytorch/container.h"

namespace weightstore::pytorch {
namespace {

// True for an array of numpy, whose elements are in the pickle. Every other tensor is a range of the file, or gathers
// its elements from the file.
bool is_in_pickle(const TensorTable& table, std::uint32_t source) {
  return source != 0 && !strided_source_begin(*table.sources()[source]);
}

}  // namespace

bool has_arrays(const TensorTable& table) {
  for (std::uint32_t source = 1; source < table.sources().size(); ++source) {
    if (is_in_pickle(table, source)) return true;
  }
  return false;
}

std::shared_ptr<const Checksums> read_storage_checks(const ByteSource& file, const Limits& limits, bool with_pickle) {
  std::vector<MemberChecksums::Member> members;
  for (StorageChecksum& storage : read_checksums(file, limits)) {
    members.push_back({std::move(storage.name), storage.begin, storage.end, storage.end - storage.begin, storage.crc,
                       /*deflated=*/false});
  }
  std::optional<std::uint64_t> pickle_begin;
  if (auto pickle = with_pickle ? read_pickle_member(file, limits) : std::nullopt) {
    pickle_begin = pickle->begin;
    const auto before = [](const auto& a, const auto& b) { return a.begin < b.begin; };
    members.insert(std::upper_bound(members.begin(), members.end(), *pickle, before), std::move(*pickle));
  }
  return std::make_shared<MemberChecksums>(
      "storage", std::move(members),
      [pickle_begin](const TensorTable& table, std::size_t tensor) -> std::optional<std::uint64_t> {
        const std::uint32_t source = table.source_of(tensor);
        if (is_in_pickle(table, source)) return pickle_begin;
        return strided_source_begin(*table.sources()[source]).value_or(table.begin(tensor));
      });
}

}  // namespace weightstore::pytorch
