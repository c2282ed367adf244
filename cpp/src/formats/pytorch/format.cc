#include <array>

#include "codec/zip_names.h"
#include "formats/format_spec.h"
#include "formats/pytorch/signature.h"
#include "formats/pytorch/storage_checks.h"
#include "weightstore/pytorch.h"

namespace weightstore::pytorch {
namespace {

constexpr std::array<std::string_view, 2> kEndings = {".pt", ".pth"};

static_assert(kHeadBytes >= kSignatureBytes);

// torch.save() puts all records into one folder.
bool is_pickle_name(std::string_view name) {
  const std::size_t slash = name.find('/');
  return slash != std::string_view::npos && name.substr(slash + 1) == "data.pkl";
}

bool recognises(const FileHead& head) {
  if (is_pickle(head.bytes) || is_text_pickle(head.bytes) || is_tar(head.bytes)) return true;
  if (!is_zip(head.bytes)) return false;
  // torch.save() writes the pickle first; other programs may not.
  return is_pickle_name(first_zip_name(head.bytes)) || any_zip_name(head.source, is_pickle_name);
}

OpenedFile open(std::shared_ptr<const ByteSource> source, const ReadOptions& options) {
  TensorTable table = read_table(source, options.limits, {options.opaque});
  const bool with_pickle = has_arrays(table);
  return {
      .table = std::move(table),
      .expansion = ExpansionLimit::usual(source->size(), options.limits),
      .own_checksums = [source, limits = options.limits,
                        with_pickle] { return read_storage_checks(*source, limits, with_pickle); },
  };
}

// What torch has a type for.
std::optional<DType> stored_as(DType dtype) {
  if (block_of(dtype)) return std::nullopt;
  switch (dtype) {
    case DType::kF6_E2M3:
    case DType::kF6_E3M2:
    case DType::kFlex32:
    case DType::kBoolU8:
    case DType::kBoolU32:
    case DType::kQFloat:
      return std::nullopt;
    default:
      return dtype;
  }
}

}  // namespace

const FormatSpec& format() {
  static constexpr FormatSpec kFormat{
      .id = Format::kPytorch,
      .name = "pytorch",
      .title = "PyTorch",
      .described = "a file of torch.save()",
      .endings = kEndings,
      .recognises = recognises,
      .open = open,
      .plan = nullptr,
      .stored_as = stored_as,
  };
  return kFormat;
}

}  // namespace weightstore::pytorch
