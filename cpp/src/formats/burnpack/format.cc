#include <array>

#include "formats/format_spec.h"
#include "weightstore/burnpack.h"

namespace weightstore::burnpack {
namespace {

constexpr std::array<std::string_view, 1> kEndings = {".bpk"};

bool recognises(const FileHead& head) { return head.bytes.starts_with("NRUB") && head.bytes.size() >= 6; }

OpenedFile open(std::shared_ptr<const ByteSource> source, const ReadOptions& options) {
  return {.table = read_table(std::move(source), options.limits)};
}

Layout plan_contents(const FileContents& contents, const PlanOptions& options) { return plan(contents, options.burn); }

std::optional<DType> stored_as(DType dtype) { return in_burnpack(dtype) ? std::optional(dtype) : std::nullopt; }

}  // namespace

const FormatSpec& format() {
  static constexpr FormatSpec kFormat{
      .id = Format::kBurnpack,
      .name = "burnpack",
      .title = "Burnpack",
      .described = "a Burnpack file",
      .endings = kEndings,
      .has_scalars = true,
      .has_param_ids = true,
      .recognises = recognises,
      .open = open,
      .plan = plan_contents,
      .stored_as = stored_as,
  };
  return kFormat;
}

}  // namespace weightstore::burnpack
