#include "formats/foreign_files.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/utf8.h"
#include "codec/zip_names.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

constexpr std::size_t kLeastText = 8;

bool starts_with_any_case(std::string_view text, std::string_view lower) {
  if (text.size() < lower.size()) return false;
  return std::equal(lower.begin(), lower.end(), text.begin(),
                    [](char a, char b) { return a == static_cast<char>(std::tolower(static_cast<unsigned char>(b))); });
}

// Says what is inside, so that the reader of the message knows which file this is.
std::string describe_zip(const ByteSource& source) {
  std::uint64_t records = 0;
  std::string first;
  const bool whole = visit_zip_names(source, [&](std::string_view name) {
    if (records++ == 0) first = printable(name);
    return true;
  });
  const std::string example = first.empty() ? "" : "'" + first + "'";
  if (!whole) {
    return "a ZIP archive without a directory at its end, so that it was cut short or something was appended" +
           (example.empty() ? "" : "; its first record is " + example);
  }
  if (records == 0) return "an empty ZIP archive";
  return "a ZIP archive of " + std::to_string(records) + (records == 1 ? " record, " : " records, the first of them ") +
         example + ", of neither torch.save() (it has no data.pkl) nor numpy.savez() (it has no .npy)";
}

// Text in UTF-8 without control characters but those of text files. Too few bytes may be the beginning of anything.
bool is_text(std::string_view head) {
  if (head.size() < kLeastText) return false;
  const auto is_plain = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 ? byte != 0x7F : byte >= '\t' && byte <= '\r';
  };
  if (!std::all_of(head.begin(), head.end(), is_plain)) return false;
  // The head may end inside a character, which has at most four bytes.
  for (std::size_t cut = 0; cut < 4; ++cut) {
    if (is_utf8(head.substr(0, head.size() - cut))) return true;
  }
  return false;
}

// A model in ONNX is a protocol buffer: the field `ir_version`, a small number, and another field of ModelProto.
bool is_onnx(std::string_view head) {
  constexpr std::string_view kOtherFields = "\x12\x1a\x22\x28\x32\x3a\x42";  // 2 to 8
  return head.size() >= 3 && head[0] == '\x08' && head[1] >= 1 && head[1] <= 32 &&
         kOtherFields.find(head[2]) != std::string_view::npos;
}

}  // namespace

std::string describe_foreign_file(const FileHead& file) {
  const std::string_view head = file.bytes;
  const std::string_view text = head.substr(std::min(head.find_first_not_of(" \n\t\r"), head.size()));
  if (head.starts_with("version https://git-lfs")) {
    return "a Git LFS pointer, not the file itself; fetch it with 'git lfs pull'";
  }
  if (starts_with_any_case(text, "<!doctype") || starts_with_any_case(text, "<html") || text.starts_with("<?xml")) {
    return "an HTML or XML page, most likely an error page saved in place of a download; download the file again";
  }
  if (head.starts_with("PK\3\4") || head.starts_with("PK\5\6")) return describe_zip(file.source);
  if (head.starts_with("\x89HDF\r\n\x1a\n")) return "an HDF5 file, which this library does not read";
  if (head.starts_with("\x1f\x8b")) return "gzip-compressed; decompress it first";
  if (head.starts_with("\x28\xb5\x2f\xfd")) return "zstd-compressed; decompress it first";
  if (is_onnx(head)) return "an ONNX model, which this library does not read";
  if (is_text(head)) return "a text file, which holds no tensors; give the file with the weights";
  return "";
}

}  // namespace weightstore
