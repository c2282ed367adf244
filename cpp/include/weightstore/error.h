#pragma once

// The one exception of the library.
//
// An Error says what went wrong (code and message) and where (file, tensor, byte offset, errno). The place is filled in
// as the error travels outwards: a codec knows the offset, a format knows the tensor, the reader knows the path. A
// field that was set once is not overwritten, because the innermost caller knows best.

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "weightstore/format.h"

namespace weightstore {

enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  // the caller asked for something that makes no sense
  kNotFound,         // no such tensor
  kCorrupt,          // the file breaks the rules of its format
  kUnsupported,      // well-formed, but not something this library handles
  kLimit,            // larger than a limit in ReadOptions or in the format
  kMemory,           // needs more memory than is available
  kIo,               // the operating system said no; os_errno() tells which no
  kConflict,         // the target exists, or somebody else is writing it
  kCancelled,        // a progress callback asked to stop
};

// The code's name in lower case, e.g. "corrupt".
std::string_view to_string(ErrorCode code);

// Control characters as \xNN, so that a name from outside cannot steer a terminal or forge a line of a log. Error does
// this to its message and its path.
std::string escape_controls(std::string_view text);

// Text from outside as a message may show it: escape_controls(), and of more than a few hundred bytes only the
// beginning and the length.
std::string printable(std::string_view text);

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message);

  // Each sets one part of the place unless it is set already, and returns *this so that a throw reads as one sentence:
  //   throw Error(ErrorCode::kCorrupt, "...").in_tensor(name).at_offset(12);
  Error& in_file(std::string_view path);
  Error& in_tensor(std::string_view name);
  Error& at_offset(std::uint64_t byte_offset);
  Error& of_format(Format format);
  Error& with_errno(int os_errno);

  // Moves the offset, if set, by `delta`: from a place inside a header to the place in the file.
  Error& shift_offset(std::uint64_t delta);

  // The same refusal in the words of the format's reference implementation, for callers that match on its texts.
  Error& known_as(std::string reference_text);

  ErrorCode code() const { return code_; }
  Format format() const { return format_; }
  const std::string& message() const { return message_; }  // without the place
  const std::string& path() const { return path_; }        // as it is on disk; empty when unknown
  const std::string& tensor() const { return tensor_; }    // empty when unknown
  std::optional<std::uint64_t> offset() const { return offset_; }
  int os_errno() const { return os_errno_; }  // 0 when the operating system was not involved
  const std::string& reference_text() const { return reference_text_; }

  // "<path>: tensor 'name': <message> (at byte N)", with the parts that are known.
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  void compose();

  ErrorCode code_;
  Format format_ = Format::kUnknown;
  std::string message_;
  std::string path_;
  std::string tensor_;
  bool has_tensor_ = false;
  std::optional<std::uint64_t> offset_;
  int os_errno_ = 0;
  std::string reference_text_;
  std::string what_;
};

}  // namespace weightstore
