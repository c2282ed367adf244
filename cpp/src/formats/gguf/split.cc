#include "formats/gguf/split.h"

#include <string>

#include "base/corrupt.h"

namespace weightstore::gguf {
namespace {

constexpr std::string_view kNumber = "split.no";
constexpr std::string_view kCount = "split.count";
constexpr std::string_view kTensors = "split.tensors.count";
constexpr std::uint64_t kMostParts = 65'535;  // the entries have 16 bits

// An integer of any type, because programs do not agree which one it is.
std::optional<std::uint64_t> integer(const TypedMetadata& metadata, std::string_view key) {
  const auto entry = metadata.find(key);
  if (!entry) return std::nullopt;
  const MetadataView value = metadata.value(*entry);
  if (!value.is_array()) {
    const MetadataScalar scalar = value.scalar();
    if (const auto* n = std::get_if<std::uint64_t>(&scalar)) return *n;
    if (const auto* n = std::get_if<std::int64_t>(&scalar); n != nullptr && *n >= 0) {
      return static_cast<std::uint64_t>(*n);
    }
  }
  throw corrupt(std::string(key) + " is a whole number and not negative; here it is " + value.type_name());
}

}  // namespace

std::optional<FilePart> split_part(const TypedMetadata& metadata) {
  const auto count = integer(metadata, kCount);
  if (!count || *count <= 1) return std::nullopt;
  const std::uint64_t number = integer(metadata, kNumber).value_or(UINT64_MAX);
  if (number >= *count || *count > kMostParts) {
    throw corrupt("split.count is " + std::to_string(*count) + " and split.no " +
                  (number == UINT64_MAX ? "is not there" : "is " + std::to_string(number)));
  }
  return FilePart{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(*count), integer(metadata, kTensors)};
}

bool is_split_key(std::string_view key) { return key == kNumber || key == kCount || key == kTensors; }

}  // namespace weightstore::gguf
