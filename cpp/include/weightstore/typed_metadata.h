#pragma once

// Metadata whose values have types, as a GGUF file stores them: numbers, booleans, text, and arrays of one type.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace weightstore {

// The numbers are those of the format.
enum class MetadataType : std::uint8_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

inline constexpr unsigned kMetadataTypeCount = 13;

// "UINT8", "FLOAT32", "STRING", "ARRAY", ...
std::string_view name_of(MetadataType type);
std::optional<MetadataType> metadata_type_from_name(std::string_view name);  // in any letter case

// The bytes of a number or boolean; 0 for text and arrays.
std::size_t bytes_of(MetadataType type);

// A number, a boolean or a text. Text is as it is in the file: not always UTF-8.
using MetadataScalar = std::variant<std::uint64_t, std::int64_t, float, double, bool, std::string_view>;

// One value. A view of the TypedMetadata that returned it, which must outlive it.
class MetadataView {
 public:
  MetadataView(MetadataType type, std::string_view encoded) : type_(type), encoded_(encoded) {}

  MetadataType type() const { return type_; }
  bool is_array() const { return type_ == MetadataType::kArray; }

  // Of a value that is not an array.
  MetadataScalar scalar() const;

  // Of an array: the type of its items, their number, and a call of visit(MetadataView) for each of them in order.
  MetadataType item_type() const;
  std::uint64_t size() const;
  template <class Visit>
  void for_each(Visit&& visit) const {
    std::string_view rest = encoded_.substr(kArrayHead);
    const MetadataType type = item_type();
    for (std::uint64_t n = size(); n > 0; --n) {
      const std::size_t length = item_length(type, rest);
      visit(MetadataView(type, rest.substr(0, length)));
      rest.remove_prefix(length);
    }
  }

  // The type in full: "UINT32", "ARRAY[STRING]", "ARRAY[ARRAY[INT32]]". An array of empty arrays does not say of what.
  std::string type_name() const;

  // The value as a GGUF file of version 3 in little-endian order has it, without its type.
  std::string_view encoded() const { return encoded_; }

 private:
  static constexpr std::size_t kArrayHead = 4 + 8;  // the type of the items, their number

  // The length of the first value in `bytes`.
  static std::size_t item_length(MetadataType type, std::string_view bytes);

  MetadataType type_;
  std::string_view encoded_;
};

// The entries of a file in its order. Values stay encoded until they are asked for, so that opening a file with the
// vocabulary of a tokenizer costs little. Does not change after it was built.
class TypedMetadata {
 public:
  std::size_t size() const { return entries_.size(); }
  std::string_view key(std::size_t i) const { return text(entries_[i].key_offset, entries_[i].key_length); }
  MetadataView value(std::size_t i) const {
    return {entries_[i].type, text(entries_[i].value_offset, entries_[i].value_length)};
  }
  std::optional<std::size_t> find(std::string_view key) const;  // takes linear time

  // ---- building ---------------------------------------------------------------------------------------------------
  // Appends an entry; the caller makes sure that keys are unique. `encoded` is as MetadataView::encoded(). Throws
  // Error(kInvalidArgument) for a key or value that a GGUF file cannot hold, and Error(kLimit) beyond 4 GiB.
  void add(std::string_view key, MetadataType type, std::string_view encoded);
  // Replaces the value of the entry with this key, or appends an entry. Takes linear time. Throws as add() does.
  void set(std::string_view key, std::uint32_t value);  // a UINT32

  // For a reader: entries in the text of a header that the reader has checked.
  struct Entry {
    std::uint32_t key_offset;
    std::uint32_t key_length;
    std::uint32_t value_offset;
    std::uint32_t value_length;
    MetadataType type;
  };
  TypedMetadata() = default;
  TypedMetadata(std::shared_ptr<const char[]> header, std::size_t header_size, std::vector<Entry> entries)
      : header_(std::move(header)), header_size_(header_size), entries_(std::move(entries)) {}

 private:
  std::string_view text(std::uint32_t offset, std::uint32_t length) const {
    if (offset < header_size_) return {header_.get() + offset, length};
    return std::string_view(own_).substr(offset - header_size_, length);
  }

  std::shared_ptr<const char[]> header_;
  std::size_t header_size_ = 0;
  std::string own_;  // what add() was given; its offsets begin behind the header
  std::vector<Entry> entries_;
};

// The longest key that a GGUF file can have, and how deeply arrays may be nested.
inline constexpr std::size_t kMaxMetadataKey = 65'535;
inline constexpr unsigned kMaxMetadataDepth = 8;

// A number or boolean as text, shortest for floats; text as it is. nullopt for an array, and for text that is not
// UTF-8.
std::optional<std::string> as_text(const MetadataView& value);

}  // namespace weightstore
