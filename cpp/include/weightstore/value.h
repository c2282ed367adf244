#pragma once

// A small tree of plain data for everything that is not a tensor: scalars, configurations, optimizer steps.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace weightstore {

// A value type: copies are deep. Maps keep the order of their source, and lookups are linear, because maps are small. A
// Value takes 16 bytes, because lists of a million numbers are common in configurations. It allocates memory only for
// text, bytes, lists and maps that are not empty.
class Value {
 public:
  using Bytes = std::vector<std::byte>;
  using List = std::vector<Value>;
  using Map = std::vector<std::pair<Value, Value>>;  // keys are text unless a codec says otherwise
  struct Null {
    bool operator==(const Null&) const = default;
  };

  Value() = default;
  Value(bool v) : data_(v) {}
  Value(std::int64_t v) : data_(v) {}
  Value(int v) : data_(std::int64_t{v}) {}
  // Stored as std::uint64_t only if it does not fit into std::int64_t.
  Value(std::uint64_t v) {
    if (v <= static_cast<std::uint64_t>(INT64_MAX)) {
      data_ = static_cast<std::int64_t>(v);
    } else {
      data_ = v;
    }
  }
  Value(double v) : data_(v) {}
  Value(std::string v) : data_(Box<std::string>(std::move(v))) {}
  Value(const char* v) : Value(std::string(v)) {}
  Value(Bytes v) : data_(Box<Bytes>(std::move(v))) {}
  Value(List v) : data_(Box<List>(std::move(v))) {}
  Value(Map v) : data_(Box<Map>(std::move(v))) {}

  // The value as a T, or nullptr when it has another type. T is one of Null, bool, std::int64_t, std::uint64_t,
  // double, std::string, Bytes, List and Map.
  template <class T>
  const T* get_if() const {
    if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, Bytes> || std::is_same_v<T, List> ||
                  std::is_same_v<T, Map>) {
      const Box<T>* box = std::get_if<Box<T>>(&data_);
      return box == nullptr ? nullptr : &box->content();
    } else {
      return std::get_if<T>(&data_);
    }
  }

  // Calls `visitor` with the value in its own type.
  template <class Visitor>
  decltype(auto) visit(Visitor&& visitor) const {
    return std::visit([&](const auto& held) -> decltype(auto) { return visitor(content_of(held)); }, data_);
  }

  // The value of a text key of a map; nullptr when there is none, or when this is not a map.
  const Value* find(std::string_view key) const;

  bool operator==(const Value&) const = default;

 private:
  // A T on the heap; a null pointer when the T is empty.
  template <class T>
  class Box {
   public:
    explicit Box(T&& content) : content_(content.empty() ? nullptr : new T(std::move(content))) {}
    Box(const Box& other) : content_(other.content_ == nullptr ? nullptr : new T(*other.content_)) {}
    Box(Box&& other) noexcept : content_(std::exchange(other.content_, nullptr)) {}
    Box& operator=(Box other) noexcept {
      std::swap(content_, other.content_);
      return *this;
    }
    ~Box() { delete content_; }

    const T& content() const {
      static const T kEmpty{};
      return content_ == nullptr ? kEmpty : *content_;
    }
    bool operator==(const Box& other) const { return content() == other.content(); }

   private:
    T* content_;
  };

  template <class T>
  static const T& content_of(const T& held) {
    return held;
  }
  template <class T>
  static const T& content_of(const Box<T>& held) {
    return held.content();
  }

  std::variant<Null, bool, std::int64_t, std::uint64_t, double, Box<std::string>, Box<Bytes>, Box<List>, Box<Map>>
      data_;
};

}  // namespace weightstore
