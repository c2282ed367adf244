#include "weightstore/error.h"

#include <system_error>
#include <utility>

namespace weightstore {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kLimit:
      return "limit";
    case ErrorCode::kMemory:
      return "memory";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kConflict:
      return "conflict";
    case ErrorCode::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

std::string escape_controls(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const auto before = static_cast<unsigned char>(i > 0 ? text[i - 1] : 0);
    // U+0080 to U+009F are two bytes in UTF-8; terminals obey them, too.
    const bool c1 = (byte == 0xC2 && next >= 0x80 && next < 0xA0) || (before == 0xC2 && byte >= 0x80 && byte < 0xA0);
    if (byte >= 0x20 && byte != 0x7F && !c1) {
      result.push_back(text[i]);
    } else {
      result += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return result;
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 256;
  std::size_t end = text.size();
  if (end > kMost) {
    end = kMost;
    while (end > kMost - 3 && (text[end] & 0xC0) == 0x80) --end;  // not inside a character
  }
  std::string result = escape_controls(text.substr(0, end));
  if (end < text.size()) result += "... (" + std::to_string(text.size()) + " bytes)";
  return result;
}

Error::Error(ErrorCode code, std::string message) : code_(code), message_(escape_controls(message)) { compose(); }

Error& Error::in_file(std::string_view path) {
  if (path_.empty()) path_ = path;
  compose();
  return *this;
}

Error& Error::in_tensor(std::string_view name) {
  if (!has_tensor_) tensor_ = name;
  has_tensor_ = true;
  compose();
  return *this;
}

Error& Error::at_offset(std::uint64_t byte_offset) {
  if (!offset_) offset_ = byte_offset;
  compose();
  return *this;
}

Error& Error::shift_offset(std::uint64_t delta) {
  if (offset_) *offset_ += delta;
  compose();
  return *this;
}

Error& Error::of_format(Format format) {
  if (format_ == Format::kUnknown) format_ = format;
  return *this;
}

Error& Error::with_errno(int os_errno) {
  if (os_errno_ == 0) os_errno_ = os_errno;
  compose();
  return *this;
}

Error& Error::equivalent_errno(int os_errno) {
  if (os_errno_ == 0) {
    os_errno_ = os_errno;
    says_errno_ = true;
  }
  compose();
  return *this;
}

Error& Error::known_as(std::string reference_text) {
  if (reference_text_.empty()) reference_text_ = std::move(reference_text);
  return *this;
}

void Error::compose() {
  what_.clear();
  if (!path_.empty()) what_ += escape_controls(path_) + ": ";
  if (has_tensor_) what_ += "tensor '" + printable(tensor_) + "': ";
  what_ += message_;
  if (os_errno_ != 0 && !says_errno_) what_ += ": " + std::generic_category().message(os_errno_);
  if (offset_) what_ += " (at byte " + std::to_string(*offset_) + ")";
}

}  // namespace weightstore
