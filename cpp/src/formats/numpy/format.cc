#include <array>

#include "codec/zip_names.h"
#include "formats/format_spec.h"
#include "formats/numpy/reader.h"

namespace weightstore::numpy {
namespace {

constexpr std::array<std::string_view, 2> kEndings = {".npz", ".npy"};

bool is_array_name(std::string_view name) { return name.ends_with(".npy"); }

bool recognises(const FileHead& head) {
  if (is_array(head.bytes)) return true;
  // Only an archive has a first record. The registry asks PyTorch before.
  const std::string_view first = first_zip_name(head.bytes);
  return !first.empty() && any_zip_name(head.source, is_array_name);
}

std::optional<DType> stored_as(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
    case DType::kF16:
    case DType::kF32:
    case DType::kF64:
    case DType::kC64:
    case DType::kC128:
      return dtype;
    default:
      return std::nullopt;
  }
}

}  // namespace

const FormatSpec& format() {
  static constexpr FormatSpec kFormat{
      .id = Format::kNumpy,
      .name = "numpy",
      .title = "NumPy",
      .described = "a file of numpy.savez() or numpy.save()",
      .endings = kEndings,
      .recognises = recognises,
      .open = open,
      .plan = nullptr,
      .stored_as = stored_as,
  };
  return kFormat;
}

}  // namespace weightstore::numpy
