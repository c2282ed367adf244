#pragma once

// The exception that the library throws.
//
// An Error says what went wrong (code and message) and where (file, tensor, byte offset, errno). Callers add what they
// know while the error passes through them: a codec knows the offset, a format knows the tensor, the reader knows the
// path. The first one to set a field wins, because the innermost caller knows best.

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
  kIo,               // the operating system reports an error; os_errno() says which
  kConflict,         // the target exists, or another process is writing it
  kCancelled,        // a progress callback asked to stop
};

// The code's name in lower case, e.g. "corrupt".
std::string_view to_string(ErrorCode code);

// Replaces control characters by \xNN, so that a name from a file cannot control a terminal or forge a line of a log.
// Error does this to its message and its path.
std::string escape_controls(std::string_view text);

// Text from a file in the form in which a message shows it: with escape_controls(), and shortened to its beginning and
// its length when it is longer than a few hundred bytes.
std::string printable(std::string_view text);

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message);

  // Each of these sets one field unless it is set already, and returns *this, so that a throw is one statement:
  //   throw Error(ErrorCode::kCorrupt, "...").in_tensor(name).at_offset(12);
  Error& in_file(std::string_view path);
  Error& in_tensor(std::string_view name);
  Error& at_offset(std::uint64_t byte_offset);
  Error& of_format(Format format);
  Error& with_errno(int os_errno);  // what() adds the system's text for it
  // For an error that this library found itself: the errno that stands for it. The message says everything, so what()
  // adds no text.
  Error& equivalent_errno(int os_errno);

  // Adds `delta` to the offset if it is set: turns an offset in a header into an offset in the file.
  Error& shift_offset(std::uint64_t delta);

  // The text with which the reference implementation of the format refuses the same file, for callers that compare
  // such texts.
  Error& known_as(std::string reference_text);

  ErrorCode code() const { return code_; }
  Format format() const { return format_; }
  const std::string& message() const { return message_; }  // without the place
  const std::string& path() const { return path_; }        // as it is on disk; empty when unknown
  const std::string& tensor() const { return tensor_; }    // empty when unknown
  std::optional<std::uint64_t> offset() const { return offset_; }
  int os_errno() const { return os_errno_; }  // 0 when it is not an error of the operating system
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
  bool says_errno_ = false;  // message_ says what os_errno_ means
  std::string reference_text_;
  std::string what_;
};

}  // namespace weightstore
