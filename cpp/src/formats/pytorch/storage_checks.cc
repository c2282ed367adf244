#include "formats/pytorch/storage_checks.h"

#include <utility>
#include <vector>

#include "base/strided_source.h"
#include "formats/member_checksums.h"

namespace weightstore::pytorch {
namespace {

// Where the tensor's first byte is in the file.
std::optional<std::uint64_t> position_of(const TensorTable& table, std::size_t tensor) {
  return strided_source_begin(*table.sources()[table.source_of(tensor)]).value_or(table.begin(tensor));
}

}  // namespace

std::shared_ptr<const Checksums> read_storage_checks(const ByteSource& file, const Limits& limits) {
  std::vector<MemberChecksums::Member> storages;
  for (StorageChecksum& storage : read_checksums(file, limits)) {
    storages.push_back({std::move(storage.name), storage.begin, storage.end, storage.end - storage.begin, storage.crc,
                        /*deflated=*/false});
  }
  return std::make_shared<MemberChecksums>("storage", std::move(storages), position_of);
}

}  // namespace weightstore::pytorch
