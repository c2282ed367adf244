#include <array>

#include "formats/format_spec.h"
#include "formats/gguf/header.h"
#include "formats/gguf/reader.h"
#include "formats/gguf/tensor_types.h"
#include "formats/gguf/writer.h"

namespace weightstore::gguf {
namespace {

constexpr std::array<std::string_view, 1> kEndings = {".gguf"};

bool recognises(const FileHead& head) { return head.bytes.starts_with(kMagic); }

Layout plan_contents(const FileContents& contents, const PlanOptions&) { return plan(contents); }

std::optional<DType> stored_as(DType dtype) {
  if (dtype == DType::kFlex32) return DType::kF32;
  return number_of_type(dtype) ? std::optional(dtype) : std::nullopt;
}

}  // namespace

const FormatSpec& format() {
  static constexpr FormatSpec kFormat{
      .id = Format::kGguf,
      .name = "gguf",
      .title = "GGUF",
      .described = "a GGUF file",
      .endings = kEndings,
      .has_typed_metadata = true,
      .recognises = recognises,
      .open = open,
      .plan = plan_contents,
      .stored_as = stored_as,
  };
  return kFormat;
}

}  // namespace weightstore::gguf
