#pragma once

// A small tree of plain data, for what is not a tensor: scalars, configurations, optimizer steps.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace weightstore {

// A value type; copies are deep. Maps keep the order of their source and may be looked up linearly: they are small.
class Value {
 public:
  using Bytes = std::vector<std::byte>;
  using List = std::vector<Value>;
  using Map = std::vector<std::pair<Value, Value>>;  // keys are text unless a codec says otherwise
  struct Null {
    bool operator==(const Null&) const = default;
  };
  // std::uint64_t holds only what std::int64_t cannot.
  using Variant = std::variant<Null, bool, std::int64_t, std::uint64_t, double, std::string, Bytes, List, Map>;

  Value() = default;
  Value(bool v) : data_(v) {}
  Value(std::int64_t v) : data_(v) {}
  Value(int v) : data_(std::int64_t{v}) {}
  Value(std::uint64_t v) {
    if (v <= static_cast<std::uint64_t>(INT64_MAX)) {
      data_ = static_cast<std::int64_t>(v);
    } else {
      data_ = v;
    }
  }
  Value(double v) : data_(v) {}
  Value(std::string v) : data_(std::move(v)) {}
  Value(const char* v) : data_(std::string(v)) {}
  Value(Bytes v) : data_(std::move(v)) {}
  Value(List v) : data_(std::move(v)) {}
  Value(Map v) : data_(std::move(v)) {}

  const Variant& data() const { return data_; }

  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&data_);
  }

  // The value under a text key of a map, or nullptr.
  const Value* find(std::string_view key) const;

  bool operator==(const Value&) const = default;

 private:
  Variant data_;
};

}  // namespace weightstore
