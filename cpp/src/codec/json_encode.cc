#include <array>
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "codec/json.h"
#include "weightstore/error.h"

namespace weightstore {

void append_json_string(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out.push_back('"');
  std::size_t clean = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, clean, i - clean);
    clean = i + 1;
    constexpr std::string_view kFrom = "\"\\\b\f\n\r\t";
    constexpr std::string_view kTo = "\"\\bfnrt";
    if (const std::size_t k = kFrom.find(c); k != std::string_view::npos) {
      out += {'\\', kTo[k]};
    } else {
      out += {'\\', 'u', '0', '0', kHex[static_cast<unsigned char>(c) >> 4], kHex[static_cast<unsigned char>(c) & 15]};
    }
  }
  out.append(text, clean, text.size() - clean);
  out.push_back('"');
}

namespace {

void append_json(std::string& out, const Value& value);

struct JsonAppender {
  std::string& out;

  void operator()(Value::Null) const { out += "null"; }
  void operator()(bool v) const { out += v ? "true" : "false"; }
  void operator()(std::int64_t v) const { out += std::to_string(v); }
  void operator()(std::uint64_t v) const { out += std::to_string(v); }
  void operator()(double v) const {
    if (!std::isfinite(v)) throw Error(ErrorCode::kInvalidArgument, "JSON has no NaN and no infinity");
    std::array<char, 32> digits;
    const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), v);
    const std::string_view text(digits.data(), static_cast<std::size_t>(result.ptr - digits.data()));
    out += text;
    // Without this a whole number would come back as an integer.
    if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
  }
  void operator()(const std::string& v) const {
    if (!is_utf8(v)) throw Error(ErrorCode::kInvalidArgument, "text for JSON is not UTF-8");
    append_json_string(out, v);
  }
  void operator()(const Value::Bytes&) const { throw Error(ErrorCode::kInvalidArgument, "JSON has no byte strings"); }
  void operator()(const Value::List& list) const {
    out.push_back('[');
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out.push_back(',');
      append_json(out, list[i]);
    }
    out.push_back(']');
  }
  void operator()(const Value::Map& map) const {
    out.push_back('{');
    for (std::size_t i = 0; i < map.size(); ++i) {
      if (i > 0) out.push_back(',');
      const std::string* key = map[i].first.get_if<std::string>();
      if (key == nullptr) throw Error(ErrorCode::kInvalidArgument, "a JSON key must be text");
      (*this)(*key);
      out.push_back(':');
      append_json(out, map[i].second);
    }
    out.push_back('}');
  }
};

void append_json(std::string& out, const Value& value) { value.visit(JsonAppender{out}); }

}  // namespace

std::string json_encode(const Value& value) {
  std::string out;
  append_json(out, value);
  return out;
}

}  // namespace weightstore
