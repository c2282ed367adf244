#include "weightstore/typed_metadata.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <limits>
#include <type_traits>

#include "base/little_endian.h"
#include "base/metadata_walk.h"
#include "base/utf8.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

struct Traits {
  std::string_view name;
  std::size_t bytes;
};

// In the order of the enumeration.
constexpr std::array<Traits, kMetadataTypeCount> kTraits = {{
    {"UINT8", 1},
    {"INT8", 1},
    {"UINT16", 2},
    {"INT16", 2},
    {"UINT32", 4},
    {"INT32", 4},
    {"FLOAT32", 4},
    {"BOOL", 1},
    {"STRING", 0},
    {"ARRAY", 0},
    {"UINT64", 8},
    {"INT64", 8},
    {"FLOAT64", 8},
}};

// Bytes that are all there.
class FixedCursor {
 public:
  explicit FixedCursor(std::string_view bytes) : rest_(bytes) {}

  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() { return number(8); }
  void numbers(std::size_t width, std::uint64_t count) {
    if (count > rest_.size() / width) fail();
    rest_.remove_prefix(static_cast<std::size_t>(count) * width);
  }
  void bytes(std::uint64_t count) { numbers(1, count); }
  std::uint64_t left() const { return rest_.size(); }

 private:
  std::uint64_t number(std::size_t width) {
    if (rest_.size() < width) fail();
    const std::uint64_t n = load_little_endian(rest_.substr(0, width));
    rest_.remove_prefix(width);
    return n;
  }
  [[noreturn]] static void fail() { throw corrupt("the value ends too early"); }

  std::string_view rest_;
};

template <class T>
std::string shortest(T number) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number);
  return {text.data(), end.ptr};
}

}  // namespace

std::string_view name_of(MetadataType type) { return kTraits[static_cast<std::size_t>(type)].name; }

std::size_t bytes_of(MetadataType type) { return kTraits[static_cast<std::size_t>(type)].bytes; }

std::optional<MetadataType> metadata_type_from_name(std::string_view name) {
  const auto upper = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; };
  for (std::size_t i = 0; i < kTraits.size(); ++i) {
    const std::string_view known = kTraits[i].name;
    if (std::equal(known.begin(), known.end(), name.begin(), name.end(), [&](char a, char b) { return a == upper(b); }))
      return static_cast<MetadataType>(i);
  }
  return std::nullopt;
}

MetadataScalar MetadataView::scalar() const {
  const std::uint64_t bits = type_ == MetadataType::kString ? 0 : load_little_endian(encoded_);
  switch (type_) {
    case MetadataType::kInt8:
      return std::int64_t{static_cast<std::int8_t>(bits)};
    case MetadataType::kInt16:
      return std::int64_t{static_cast<std::int16_t>(bits)};
    case MetadataType::kInt32:
      return std::int64_t{static_cast<std::int32_t>(bits)};
    case MetadataType::kInt64:
      return static_cast<std::int64_t>(bits);
    case MetadataType::kFloat32:
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    case MetadataType::kFloat64:
      return std::bit_cast<double>(bits);
    case MetadataType::kBool:
      return bits != 0;
    case MetadataType::kString:
      return encoded_.substr(8);
    default:
      return bits;
  }
}

MetadataType MetadataView::item_type() const {
  return static_cast<MetadataType>(load_little_endian(encoded_.substr(0, 4)));
}

std::uint64_t MetadataView::size() const { return load_little_endian(encoded_.substr(4, 8)); }

std::size_t MetadataView::item_length(MetadataType type, std::string_view bytes) {
  if (const std::size_t width = bytes_of(type); width != 0) return width;
  if (type == MetadataType::kString) return 8 + static_cast<std::size_t>(load_little_endian(bytes.substr(0, 8)));
  FixedCursor in(bytes);
  walk_value(in, type);
  return bytes.size() - static_cast<std::size_t>(in.left());
}

std::string MetadataView::type_name() const {
  if (!is_array()) return std::string(name_of(type_));
  std::string item(name_of(item_type()));
  if (item_type() == MetadataType::kArray && size() != 0) {
    item = MetadataView(MetadataType::kArray, encoded_.substr(kArrayHead)).type_name();
  }
  return "ARRAY[" + item + "]";
}

std::optional<std::size_t> TypedMetadata::find(std::string_view wanted) const {
  for (std::size_t i = 0; i < size(); ++i) {
    if (key(i) == wanted) return i;
  }
  return std::nullopt;
}

void TypedMetadata::add(std::string_view new_key, MetadataType type, std::string_view encoded) {
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    throw Error(code, "the metadata entry '" + printable(new_key) + "' " + why);
  };
  if (new_key.size() > kMaxMetadataKey) refuse(ErrorCode::kInvalidArgument, "has a key of more than 65535 bytes");
  if (new_key.find('\0') != new_key.npos) refuse(ErrorCode::kInvalidArgument, "has a NUL in its key");
  if (!is_utf8(new_key)) refuse(ErrorCode::kInvalidArgument, "has a key that is not UTF-8");
  FixedCursor in(encoded);
  try {
    walk_value(in, type);
  } catch (const Error& error) {
    refuse(ErrorCode::kInvalidArgument, "cannot be written: " + error.message());
  }
  if (in.left() != 0) refuse(ErrorCode::kInvalidArgument, "has bytes behind its value");
  const std::size_t offset = header_size_ + own_.size();
  if (offset + new_key.size() + encoded.size() > std::numeric_limits<std::uint32_t>::max()) {
    refuse(ErrorCode::kLimit, "makes the metadata larger than 4 GiB");
  }
  entries_.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(new_key.size()),
                      static_cast<std::uint32_t>(offset + new_key.size()), static_cast<std::uint32_t>(encoded.size()),
                      type});
  own_ += new_key;
  own_ += encoded;
}

void TypedMetadata::set(std::string_view new_key, std::uint32_t value) {
  std::string encoded;
  append_little_endian(encoded, value, 4);
  const auto known = find(new_key);
  add(new_key, MetadataType::kUint32, encoded);
  if (!known) return;
  entries_[*known] = entries_.back();
  entries_.pop_back();
}

std::optional<std::string> as_text(const MetadataView& value) {
  if (value.is_array()) return std::nullopt;
  return std::visit(
      [](auto v) -> std::optional<std::string> {
        using T = decltype(v);
        if constexpr (std::is_same_v<T, bool>) {
          return v ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          return is_utf8(v) ? std::optional<std::string>(v) : std::nullopt;
        } else {
          return shortest(v);
        }
      },
      value.scalar());
}

}  // namespace weightstore
