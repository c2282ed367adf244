#include <algorithm>
#include <array>

#include "base/little_endian.h"
#include "formats/format_spec.h"
#include "formats/safetensors/header.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"

namespace weightstore::safetensors {
namespace {

constexpr std::array<std::string_view, 1> kEndings = {kExtension};
constexpr std::array<std::string_view, 1> kIndexEndings = {".safetensors.index.json"};

std::string_view skip_space(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \n\t\r"), text.size()));
}

// The length is plausible and an object begins behind it. White space before the object is legal. A length beyond the
// end of the file is plausible too, when the format allows it: such a file was cut short.
bool recognises(const FileHead& head) {
  if (head.bytes.size() <= kLengthBytes) return false;
  const auto length = load_little_endian<std::uint64_t>(reinterpret_cast<const std::byte*>(head.bytes.data()));
  if (length > std::max(head.source.size(), kMaxHeaderBytes)) return false;
  const std::string_view object = skip_space(head.bytes.substr(kLengthBytes));
  return object.empty() ? length > kHeadBytes - kLengthBytes : object.front() == '{';
}

OpenedFile open(std::shared_ptr<const ByteSource> source, const ReadOptions& options) {
  return {.table = read_table(std::move(source), options.limits)};
}

Layout plan_contents(const FileContents& contents, const PlanOptions& options) { return plan(contents, options.order); }

// Types that differ from one of SafeTensors' in name only are stored as that one.
std::optional<DType> stored_as(DType dtype) {
  if (dtype == DType::kFlex32) return DType::kF32;
  if (dtype == DType::kBoolU8) return DType::kBool;
  return in_safetensors(dtype) ? std::optional(dtype) : std::nullopt;
}

// An index is JSON text: an object whose first key follows at once, or that is empty.
bool recognises_index(const FileHead& head) {
  std::string_view text = skip_space(head.bytes);
  if (text.empty() || text.front() != '{') return false;
  text = skip_space(text.substr(1));
  return text.empty() || text.front() == '"' || text.front() == '}';
}

OpenedFile refuse_index(std::shared_ptr<const ByteSource>, const ReadOptions&) {
  throw Error(ErrorCode::kUnsupported, "a shard index names files beside it; open it by its path");
}

}  // namespace

const FormatSpec& format() {
  static constexpr FormatSpec kFormat{
      .id = Format::kSafetensors,
      .name = "safetensors",
      .title = "SafeTensors",
      .described = "a SafeTensors file",
      .endings = kEndings,
      .owns_endings = true,
      .names_framework = true,
      .tells_empty_metadata = true,
      .recognises = recognises,
      .open = open,
      .plan = plan_contents,
      .stored_as = stored_as,
  };
  return kFormat;
}

const FormatSpec& index_format() {
  static constexpr FormatSpec kFormat{
      .id = Format::kSafetensorsIndex,
      .name = "safetensors index",
      .title = "SafeTensors",
      .described = "an index of SafeTensors shards",
      .endings = kIndexEndings,
      .owns_endings = true,
      .is_index = true,
      .names_framework = true,
      .recognises = recognises_index,
      .open = refuse_index,
      .plan = nullptr,
      .stored_as = stored_as,
  };
  return kFormat;
}

}  // namespace weightstore::safetensors
