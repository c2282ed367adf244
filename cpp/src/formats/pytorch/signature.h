#pragma once

// The first bytes of the files that torch.save() has written over the years, and of other pickles. docs/formats.md,
// "PyTorch".

#include <cstddef>
#include <string_view>

namespace weightstore::pytorch {

inline constexpr std::size_t kSignatureBytes = 512;  // as many as a file has, at most; tar needs them

inline bool is_zip(std::string_view head) { return head.starts_with(std::string_view("PK\3\4", 4)); }

// A pickle of any protocol from 2 on.
inline bool is_pickle(std::string_view head) {
  return head.size() >= 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
}

// A pickle of protocol 0 or 1 that begins with a dict or an OrderedDict. Other pickles of these protocols have nothing
// in front that tells them from text.
inline bool is_text_pickle(std::string_view head) {
  return head.starts_with("(dp") || head.starts_with("}q") || head.starts_with("ccollections\nOrderedDict\n");
}

// A pickle of the number 0x1950A86A20F9469CFC6C; from protocol 4 on it may be in a frame.
inline bool is_stream(std::string_view head) {
  if (!is_pickle(head)) return false;
  const std::string_view number("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 13);
  std::string_view rest = head.substr(2);
  if (rest.starts_with('\x95') && rest.size() > 9) rest.remove_prefix(9);
  return rest.starts_with(number);
}

inline bool is_tar(std::string_view head) { return head.size() >= 512 && head.substr(257, 5) == "ustar"; }

}  // namespace weightstore::pytorch
