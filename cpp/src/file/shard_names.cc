#include "file/shard_names.h"

#include <array>
#include <charconv>
#include <climits>
#include <cstdio>

#include "weightstore/error.h"

namespace weightstore {
namespace {

bool is_usual_ending(std::string_view ending) {
  const auto set = set_of_shard(ending);
  return set && set->stem.empty();
}

// Removes decimal digits from the end of `text`, and the word before them. nullopt when they are not there.
std::optional<std::size_t> take_number(std::string_view& text, std::string_view word) {
  const std::size_t digits = text.find_last_not_of("0123456789") + 1;
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + digits, text.data() + text.size(), number);
  if (error != std::errc() || !text.substr(0, digits).ends_with(word)) return std::nullopt;
  text = text.substr(0, digits - word.size());
  return number;
}

}  // namespace

std::string usual_shard_name(const std::string& stem, std::size_t number, std::size_t count) {
  std::array<char, 64> suffix;
  std::snprintf(suffix.data(), suffix.size(), "-%05zu-of-%05zu.safetensors", number, count);
  return stem + suffix.data();
}

std::string fresh_shard_name(const std::string& stem, const std::string& id, std::size_t number, std::size_t count) {
  return usual_shard_name(stem + "-" + id, number, count);
}

void check_stem(const std::string& stem, std::size_t count) {
  const std::string longest = fresh_shard_name(stem, std::string(kSetIdDigits, '0'), count, count);
  if (longest.size() <= NAME_MAX) return;
  throw Error(ErrorCode::kInvalidArgument, "a shard would be called '" + printable(longest) + "', which has " +
                                               std::to_string(longest.size()) + " bytes; the limit is " +
                                               std::to_string(NAME_MAX) + ", so choose a shorter name");
}

std::optional<SetName> set_of_shard(std::string_view name) {
  constexpr std::string_view kEnding = ".safetensors";
  if (!name.ends_with(kEnding)) return std::nullopt;
  std::string_view rest = name.substr(0, name.size() - kEnding.size());
  const auto count = take_number(rest, "-of-");
  const auto number = count ? take_number(rest, "-") : std::nullopt;
  if (!number || *number == 0 || *number > *count) return std::nullopt;
  SetName set{std::string(rest), *count};
  // Only one form of the numbers is the usual one.
  if (usual_shard_name(set.stem, *number, *count) != name) return std::nullopt;
  return set;
}

bool is_shard_name(const std::string& stem, std::string_view name) {
  if (!name.starts_with(stem)) return false;
  const std::string ending(name.substr(stem.size()));
  constexpr std::size_t kIdEnd = 1 + kSetIdDigits;
  const bool has_id = ending.starts_with('-') && ending.find_first_not_of("0123456789abcdef", 1) == kIdEnd;
  return is_usual_ending(ending) || (has_id && is_usual_ending(ending.substr(kIdEnd)));
}

}  // namespace weightstore
