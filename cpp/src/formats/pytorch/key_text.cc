#include "formats/pytorch/key_text.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "formats/pytorch/pickled_bytes.h"

namespace weightstore::pytorch {
namespace {

// The shortest digits that give the number again, written as Python writes them.
std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = scientific.find('e');
  int exponent = 0;
  const std::size_t sign = scientific[e + 1] == '+' ? 1 : 0;
  std::from_chars(scientific.data() + e + 1 + sign, scientific.data() + scientific.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  const auto fixed = std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::fixed).ptr;
  std::string text(buffer, fixed);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

// Quotes text or bytes; false when the result would be too long.
bool append_quoted(std::string_view text, bool is_bytes, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  if (text.size() > kMaxKeyText) return false;
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  if (is_bytes) out += 'b';
  out += quote;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (code < 0x20 || code == 0x7F || (is_bytes && code >= 0x80)) {
      out += {'\\', 'x', kHex[code >> 4], kHex[code & 15]};
    } else {
      out += c;
    }
  }
  out += quote;
  return true;
}

// False when the value has no text, or too much. Every step adds a character, so that shared parts cost no more than
// the longest text.
bool append_repr(const PickleTree& tree, Node node, std::string& out) {
  if (out.size() > kMaxKeyText) return false;
  switch (tree.kind(node)) {
    case PickleKind::kNone:
      out += "None";
      return true;
    case PickleKind::kBool:
      out += tree.boolean(node) ? "True" : "False";
      return true;
    case PickleKind::kInt:
      out += std::to_string(tree.integer(node));
      return true;
    case PickleKind::kFloat:
      out += float_text(tree.number(node));
      return true;
    case PickleKind::kText:
      return append_quoted(tree.text(node), false, out);
    case PickleKind::kBytes:
    case PickleKind::kObject: {
      const auto pickled = PickledBytes::of(tree, node);
      return pickled && pickled->most_bytes() <= kMaxKeyText && append_quoted(pickled->read(tree.memory()), true, out);
    }
    case PickleKind::kTuple: {
      out += '(';
      auto items = tree.items(node);
      bool first = true;
      for (Node item; items.next(item); first = false) {
        if (!first) out += ", ";
        if (!append_repr(tree, item, out)) return false;
      }
      if (tree.count(node) == 1) out += ',';
      out += ')';
      return true;
    }
    default:
      return false;
  }
}

}  // namespace

std::optional<std::string> key_text(const PickleTree& tree, Node key) {
  std::string text;
  if (tree.kind(key) == PickleKind::kText) return std::string(tree.text(key));
  if (!append_repr(tree, key, text) || text.size() > kMaxKeyText) return std::nullopt;
  return text;
}

std::string key_repr(const PickleTree& tree, Node key) {
  std::string text;
  if (tree.kind(key) == PickleKind::kText) {
    append_quoted(shown_name(tree.text(key)), false, text);
  } else if (!append_repr(tree, key, text)) {
    return "...";
  }
  return text;
}

}  // namespace weightstore::pytorch
