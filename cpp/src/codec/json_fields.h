#pragma once

// Fields of JSON objects that must be there. Each throws Error(kCorrupt) naming the key when it is missing or of
// another kind.

#include <cstdint>
#include <string>
#include <string_view>

#include "weightstore/value.h"

namespace weightstore {

const Value& field(const Value& object, std::string_view key);
const std::string& text_field(const Value& object, std::string_view key);
std::uint64_t uint_field(const Value& object, std::string_view key);
const Value::List& list_field(const Value& object, std::string_view key);
std::uint64_t as_uint(const Value& value, std::string_view what);

// The error that they throw.
[[noreturn]] void fail_field(std::string_view what);

}  // namespace weightstore
