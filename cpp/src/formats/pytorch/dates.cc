#include "formats/pytorch/dates.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "formats/pytorch/globals.h"
#include "formats/pytorch/pickled_bytes.h"

namespace weightstore::pytorch {
namespace {

// At most `width` digits.
std::string digits(unsigned number, int width) {
  char text[16];
  std::snprintf(text, sizeof(text), "%0*u", width, number);
  return text;
}

std::string time_text(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(bytes[i])); };
  // The highest bit of the hour says which of two equal local times is meant.
  std::string text = digits(at(0) & 0x7F, 2) + ":" + digits(at(1), 2) + ":" + digits(at(2), 2);
  const unsigned micros = at(3) << 16 | at(4) << 8 | at(5);
  if (micros != 0) text += "." + digits(micros, 6);
  return text;
}

std::string day_text(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(bytes[i])); };
  return digits(at(0) << 8 | at(1), 4) + "-" + digits(at(2) & 0x7F, 2) + "-" + digits(at(3), 2);
}

std::size_t size_of(GlobalKind kind) {
  if (kind == GlobalKind::kDateTime) return 10;
  return kind == GlobalKind::kDate ? 4 : 6;
}

}  // namespace

std::optional<std::string> date_text(const PickleTree& tree, Node date) {
  const GlobalKind kind = called_kind(tree, date);
  const Node arguments = tree.arguments(date);
  const auto pickled = PickledBytes::of(tree, tree.item(arguments, 0));
  if (!pickled || pickled->most_bytes() > 2 * size_of(kind)) return std::nullopt;
  const ChargedString bytes = pickled->read(tree.memory());
  if (bytes.size() != size_of(kind)) return std::nullopt;
  std::string text;
  if (kind != GlobalKind::kTime) text = day_text(bytes);
  if (kind == GlobalKind::kDateTime) text += "T" + time_text(std::string_view(bytes).substr(4));
  if (kind == GlobalKind::kTime) text = time_text(bytes);
  if (tree.count(arguments) < 2 || tree.kind(tree.item(arguments, 1)) == PickleKind::kNone) return text;
  const Node zone = tree.item(arguments, 1);
  if (tree.kind(zone) != PickleKind::kObject || called_kind(tree, zone) != GlobalKind::kTimeZone) return std::nullopt;
  return text + offset_text(tree, zone);
}

double seconds_of(const PickleTree& tree, Node delta) {
  const Node arguments = tree.arguments(delta);
  const auto part = [&](std::size_t i) {
    return i < tree.count(arguments) ? static_cast<double>(tree.integer(tree.item(arguments, i))) : 0.0;
  };
  return part(0) * 86400 + part(1) + part(2) / 1e6;
}

std::string offset_text(const PickleTree& tree, Node zone) {
  const double seconds = seconds_of(tree, tree.item(tree.arguments(zone), 0));
  // Python allows less than a day.
  const auto minutes = static_cast<unsigned>(std::fmod(std::abs(seconds) / 60, 24 * 60));
  std::string text(1, seconds < 0 ? '-' : '+');
  text += digits(minutes / 60, 2);
  text += ':';
  text += digits(minutes % 60, 2);
  return text;
}

std::size_t path_length(const PickleTree& tree, Node path) {
  std::size_t length = 1;
  auto parts = tree.items(tree.arguments(path));
  for (Node part; parts.next(part);) length += tree.text(part).size() + 1;
  return length;
}

std::string path_text(const PickleTree& tree, Node path) {
  const char separator = called_kind(tree, path) == GlobalKind::kPath ? '/' : '\\';
  std::string text;
  text.reserve(path_length(tree, path));
  auto parts = tree.items(tree.arguments(path));
  for (Node part; parts.next(part);) {
    // The first part may be a root, which ends in a separator.
    if (!text.empty() && text.back() != separator) text += separator;
    text += tree.text(part);
  }
  return text.empty() ? "." : text;
}

}  // namespace weightstore::pytorch
