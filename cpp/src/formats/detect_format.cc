// A file is what its structure says. A SafeTensors file may begin with any eight bytes that make a small number, among
// them a ZIP's signature; so SafeTensors is recognised by its length field and the brace behind it, before anything
// that is known by a signature alone.

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "formats/pytorch/signature.h"
#include "formats/safetensors/header.h"
#include "weightstore/byte_source.h"
#include "weightstore/error.h"
#include "weightstore/format.h"

namespace weightstore {
namespace {

constexpr std::size_t kHeadBytes = pytorch::kSignatureBytes;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

std::string_view trim_left(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return text;
}

bool starts_with_any_case(std::string_view text, std::string_view lower) {
  if (text.size() < lower.size()) return false;
  return std::equal(lower.begin(), lower.end(), text.begin(),
                    [](char a, char b) { return a == static_cast<char>(std::tolower(static_cast<unsigned char>(b))); });
}

bool ends_with_any_case(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() && starts_with_any_case(text.substr(text.size() - lower.size()), lower);
}

std::string_view described(Format format) {
  switch (format) {
    case Format::kSafetensors:
      return "a SafeTensors file";
    case Format::kSafetensorsIndex:
      return "an index of SafeTensors shards";
    case Format::kBurnpack:
      return "a Burnpack file";
    default:
      return "a file of torch.save() (a ZIP archive or a pickle)";
  }
}

std::string_view ending_of(Format format) {
  switch (format) {
    case Format::kSafetensors:
      return ".safetensors";
    case Format::kSafetensorsIndex:
      return ".safetensors.index.json";
    case Format::kBurnpack:
      return ".bpk";
    default:
      return ".pt";
  }
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t n = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) n = n << 8 | static_cast<unsigned char>(bytes[i]);
  return n;
}

// The length field is plausible and an object begins behind it. White space before the object is legal. A length beyond
// the end is plausible too, when the format allows it: such a file was cut short.
bool looks_like_safetensors(std::string_view head, std::uint64_t size) {
  if (head.size() < 9) return false;
  const std::uint64_t length = little_endian(head.substr(0, 8));
  if (length > std::max(size, safetensors::kMaxHeaderBytes)) return false;
  const std::string_view object = trim_left(head.substr(8));
  return object.empty() ? length > kHeadBytes - 8 : object.front() == '{';
}

bool looks_like_burnpack(std::string_view head) { return head.starts_with("NRUB") && head.size() >= 6; }

// An index is JSON text: an object whose first key follows at once, or that is empty.
bool looks_like_index(std::string_view head) {
  std::string_view text = trim_left(head);
  if (text.empty() || text.front() != '{') return false;
  text = trim_left(text.substr(1));
  return text.empty() || text.front() == '"' || text.front() == '}';
}

// What a file that we do not read seems to be, and what to do about it; empty when there is no telling.
std::string describe_stranger(std::string_view head) {
  const std::string_view text = trim_left(head);
  if (head.starts_with("version https://git-lfs")) {
    return "a Git LFS pointer, not the file itself; fetch it with 'git lfs pull'";
  }
  if (starts_with_any_case(text, "<!doctype") || starts_with_any_case(text, "<html") || text.starts_with("<?xml")) {
    return "an HTML or XML page, most likely an error page saved in place of a download; download the file again";
  }
  if (head.starts_with(std::string_view("PK\5\6"))) return "an empty ZIP archive";
  if (head.size() >= 2 && head[0] == '\x80' && head[1] >= 1 && head[1] <= 5) {
    return "a Python pickle that torch.save() did not write, and which can run code when it is loaded; load it where "
           "it is "
           "trusted and save it as SafeTensors or Burnpack";
  }
  if (head.starts_with("GGUF")) return "a GGUF file, which this library does not read";
  if (head.starts_with("\x93NUMPY")) return "a NumPy .npy array, which numpy.load() reads";
  if (head.starts_with("\x89HDF\r\n\x1a\n")) return "an HDF5 file, which this library does not read";
  if (head.starts_with("\x1f\x8b")) return "gzip-compressed; decompress it first";
  if (head.starts_with("\x28\xb5\x2f\xfd")) return "zstd-compressed; decompress it first";
  return "";
}

}  // namespace

std::string_view to_string(Format format) {
  switch (format) {
    case Format::kUnknown:
      return "unknown";
    case Format::kSafetensors:
      return "safetensors";
    case Format::kSafetensorsIndex:
      return "safetensors index";
    case Format::kBurnpack:
      return "burnpack";
    case Format::kPytorch:
      return "pytorch";
  }
  return "unknown";
}

Format detect_format(const ByteSource& source) {
  std::array<char, kHeadBytes> buffer;
  const auto available = static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), kHeadBytes));
  source.read_at(0, {reinterpret_cast<std::byte*>(buffer.data()), available});
  const std::string_view head(buffer.data(), available);
  if (head.empty()) throw Error(ErrorCode::kCorrupt, "the file is empty").in_file(source.name());
  if (looks_like_burnpack(head)) return Format::kBurnpack;
  if (looks_like_safetensors(head, source.size())) return Format::kSafetensors;
  if (pytorch::is_zip(head) || pytorch::is_stream(head) || pytorch::is_tar(head)) return Format::kPytorch;
  if (const std::string stranger = describe_stranger(head); !stranger.empty()) {
    throw Error(ErrorCode::kUnsupported, "this is " + stranger).in_file(source.name());
  }
  if (looks_like_index(head)) return Format::kSafetensorsIndex;
  // Neither has a signature that could be trusted: let the reader of the likeliest format say what is wrong.
  return Format::kSafetensors;
}

void check_name(std::string_view path, Format content) {
  for (const Format named : {Format::kSafetensors, Format::kSafetensorsIndex}) {
    if (content == named || !ends_with_any_case(path, ending_of(named))) continue;
    throw Error(ErrorCode::kUnsupported, "is named as " + std::string(described(named)) + ", but is " +
                                             std::string(described(content)) + "; if that is what you want, give it " +
                                             "a name that ends in " + std::string(ending_of(content)))
        .of_format(named)
        .known_as("header too large");
  }
}

Format format_of_name(std::string_view file_name) {
  const auto ends_with = [&](std::string_view ending) {
    return file_name.size() > ending.size() && ends_with_any_case(file_name, ending);
  };
  for (const Format format : {Format::kSafetensors, Format::kBurnpack}) {
    if (ends_with(ending_of(format))) return format;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "cannot tell the format from the name '" + std::string(file_name) + "'; use .safetensors or .bpk");
}

}  // namespace weightstore
