#include "formats/gguf/file_type.h"

#include <optional>
#include <string_view>

namespace weightstore::gguf {
namespace {

constexpr std::string_view kFileType = "general.file_type";
constexpr std::string_view kQuantizationVersion = "general.quantization_version";
constexpr std::uint32_t kVersion = 2;

// llama.cpp's number for a model most of whose tensors have this type.
std::optional<std::uint32_t> file_type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ8_0:
      return 7;
    case DType::kBF16:
      return 32;
    default:
      return std::nullopt;
  }
}

}  // namespace

void describe_file_type(TypedMetadata& metadata, DType dtype) {
  const auto type = file_type_of(dtype);
  if (type && metadata.find(kFileType)) metadata.set(kFileType, *type);
  if (block_of(dtype) && !metadata.find(kQuantizationVersion)) metadata.set(kQuantizationVersion, kVersion);
}

}  // namespace weightstore::gguf
