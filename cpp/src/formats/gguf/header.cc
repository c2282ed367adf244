#include "formats/gguf/header.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/corrupt.h"
#include "base/little_endian.h"
#include "base/metadata_walk.h"
#include "base/name_set.h"
#include "base/utf8.h"

namespace weightstore::gguf {
namespace {

constexpr std::uint64_t kFirstRead = 64u << 10;
// A key, a type and a value of one byte; a name, a number of dimensions, a type and an offset.
constexpr std::uint64_t kLeastEntry = 8 + 4 + 1;
constexpr std::uint64_t kLeastTensor = 8 + 4 + 4 + 8;

// The beginning of a file, copied into memory as far as it is needed. Numbers of a big-endian file are turned around
// there as the cursor passes over them.
class HeaderCursor {
 public:
  HeaderCursor(const ByteSource& source, std::uint64_t limit)
      : source_(source), file_bytes_(source.size()), limit_(limit) {}

  void set_big_endian() { swap_ = true; }
  bool is_big_endian() const { return swap_; }

  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() { return number(8); }

  void numbers(std::size_t width, std::uint64_t count) {
    if (count > left() / width) fail_short(count, width);
    const std::uint64_t bytes = count * width;
    need(bytes);
    if (swap_ && width > 1) {
      for (char* at = here(); at != here() + bytes; at += width) std::reverse(at, at + width);
    }
    at_ += bytes;
  }

  void bytes(std::uint64_t count) {
    need(count);
    at_ += count;
  }

  std::uint64_t left() const { return file_bytes_ - at_; }
  std::uint64_t at() const { return at_; }
  std::string_view text(std::uint64_t begin, std::uint64_t length) const { return {text_.get() + begin, length}; }

  std::shared_ptr<const char[]> take() { return std::move(text_); }

 private:
  char* here() { return text_.get() + at_; }

  std::uint64_t number(std::size_t width) {
    need(width);
    if (swap_) std::reverse(here(), here() + width);
    const std::uint64_t n = load_little_endian({here(), width});
    at_ += width;
    return n;
  }

  void need(std::uint64_t bytes) {
    if (bytes > size_ - at_) grow(bytes);
  }

  void grow(std::uint64_t bytes) {
    if (bytes > left()) fail_short(bytes, 1);
    const std::uint64_t needed = at_ + bytes;
    if (needed > limit_) {
      throw Error(ErrorCode::kLimit,
                  "the header is larger than " + std::to_string(limit_) + " bytes; raise the limit 'gguf_header_bytes'")
          .at_offset(at_);
    }
    const std::uint64_t wanted = std::max({2 * size_, needed, kFirstRead});
    const std::uint64_t size = std::min({wanted, file_bytes_, limit_});
    std::shared_ptr<char[]> text(new char[static_cast<std::size_t>(size)]);
    if (size_ != 0) std::memcpy(text.get(), text_.get(), static_cast<std::size_t>(size_));
    source_.read_at(size_, {reinterpret_cast<std::byte*>(text.get() + size_), static_cast<std::size_t>(size - size_)});
    text_ = std::move(text);
    size_ = size;
  }

  [[noreturn]] void fail_short(std::uint64_t count, std::size_t width) const {
    throw corrupt("the header says that " + std::to_string(count) + (width == 1 ? " bytes" : " numbers") +
                  " follow, but the file ends " + std::to_string(left()) +
                  " bytes later; it is damaged, or was cut short")
        .at_offset(at_);
  }

  const ByteSource& source_;
  const std::uint64_t file_bytes_;
  const std::uint64_t limit_;
  std::shared_ptr<char[]> text_;
  std::uint64_t size_ = 0;
  std::uint64_t at_ = 0;
  bool swap_ = false;
};

// The version is a small number, so that its byte order is that of the file.
std::uint32_t read_version(HeaderCursor& in) {
  std::uint32_t version = in.u32();
  if ((version & 0xFFFF) == 0) {
    in.set_big_endian();
    version = __builtin_bswap32(version);
  }
  if (version >= kOldestVersion && version <= kVersion) return version;
  throw Error(ErrorCode::kUnsupported,
              "this is version " + std::to_string(version) +
                  " of GGUF; versions 2 and 3 are read. Convert the model again with a newer llama.cpp");
}

void check_count(std::uint64_t count, std::uint64_t least, const char* what, const HeaderCursor& in) {
  if (count <= in.left() / least) return;
  throw corrupt("the header says that there are " + std::to_string(count) + what + ", but the file ends " +
                std::to_string(in.left()) + " bytes later; it is damaged, or was cut short")
      .at_offset(in.at());
}

void check_key(std::string_view key, std::uint64_t offset) {
  const char* problem = key.size() > kMaxMetadataKey ? "is longer than 65535 bytes"
                        : key.find('\0') != key.npos ? "has a NUL"
                        : !is_utf8(key)              ? "is not UTF-8"
                                                     : nullptr;
  if (problem != nullptr) {
    throw corrupt("the metadata key '" + printable(key) + "' " + problem).at_offset(offset);
  }
}

TypedMetadata::Entry read_entry(HeaderCursor& in) {
  TypedMetadata::Entry entry;
  const std::uint64_t begin = in.at();
  const std::uint64_t key_length = in.u64();
  const std::uint64_t key_begin = in.at();
  in.bytes(key_length);
  check_key(in.text(key_begin, key_length), begin);
  entry.key_offset = static_cast<std::uint32_t>(key_begin);
  entry.key_length = static_cast<std::uint32_t>(key_length);
  const std::uint64_t type_begin = in.at();
  try {
    entry.type = checked_type(in.u32());
    entry.value_offset = static_cast<std::uint32_t>(in.at());
    walk_value(in, entry.type);
  } catch (Error& error) {
    const std::string key = printable(in.text(key_begin, key_length));
    throw Error(error.code(), "the metadata entry '" + key + "': " + error.message())
        .at_offset(error.offset().value_or(type_begin));
  }
  entry.value_length = static_cast<std::uint32_t>(in.at() - entry.value_offset);
  return entry;
}

void check_duplicates(const HeaderCursor& in, const std::vector<TypedMetadata::Entry>& entries) {
  const auto key_of = [&](std::size_t i) { return in.text(entries[i].key_offset, entries[i].key_length); };
  NameSet seen(entries.size(), key_of);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!seen.add(i)) continue;
    throw corrupt("the metadata key '" + printable(key_of(i)) + "' is given twice").at_offset(entries[i].key_offset);
  }
}

void walk_tensor(HeaderCursor& in) {
  in.bytes(in.u64());       // name
  in.numbers(8, in.u32());  // dimensions
  in.numbers(4, 1);         // type
  in.numbers(8, 1);         // offset
}

}  // namespace

Header read_header(const ByteSource& source, const Limits& limits) {
  // Offsets in the header have 32 bits.
  HeaderCursor in(source, std::min<std::uint64_t>(limits.gguf_header_bytes, UINT32_MAX));
  if (source.size() < kFixedBytes) {
    throw corrupt("a GGUF file has at least " + std::to_string(kFixedBytes) + " bytes; this one has " +
                  std::to_string(source.size()) + ", so that it was cut short");
  }
  in.bytes(kMagic.size());
  if (in.text(0, kMagic.size()) != kMagic) throw corrupt("a GGUF file begins with the letters GGUF").at_offset(0);
  Header header;
  read_version(in);
  header.is_big_endian = in.is_big_endian();
  header.tensors = in.u64();
  const std::uint64_t entries = in.u64();
  check_count(entries, kLeastEntry, " metadata entries", in);
  check_count(header.tensors, kLeastTensor, " tensors", in);
  for (std::uint64_t i = 0; i < entries; ++i) header.metadata.push_back(read_entry(in));
  check_duplicates(in, header.metadata);
  header.tensors_begin = in.at();
  check_count(header.tensors, kLeastTensor, " tensors", in);
  for (std::uint64_t i = 0; i < header.tensors; ++i) walk_tensor(in);
  header.size = in.at();
  header.text = in.take();
  return header;
}

}  // namespace weightstore::gguf
