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

std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 256;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::size_t end = text.size();
  if (end > kMost) {
    end = kMost;
    while (end > kMost - 3 && (text[end] & 0xC0) == 0x80) --end;  // not inside a character
  }
  std::string result;
  for (const char c : text.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7F) {
      result.push_back(c);
    } else {
      result += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  if (end < text.size()) result += "... (" + std::to_string(text.size()) + " bytes)";
  return result;
}

Error::Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) { compose(); }

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

Error& Error::known_as(std::string reference_text) {
  if (reference_text_.empty()) reference_text_ = std::move(reference_text);
  return *this;
}

void Error::compose() {
  what_.clear();
  if (!path_.empty()) what_ += path_ + ": ";
  if (has_tensor_) what_ += "tensor '" + printable(tensor_) + "': ";
  what_ += message_;
  if (os_errno_ != 0) what_ += ": " + std::generic_category().message(os_errno_);
  if (offset_) what_ += " (at byte " + std::to_string(*offset_) + ")";
}

}  // namespace weightstore
