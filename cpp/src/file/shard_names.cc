#include "file/shard_names.h"

#include <array>
#include <climits>
#include <cstdio>

#include "weightstore/error.h"

namespace weightstore {
namespace {

bool is_usual_ending(const std::string& ending) {
  std::size_t number = 0;
  std::size_t count = 0;
  return std::sscanf(ending.c_str(), "-%zu-of-%zu.safetensors", &number, &count) == 2 &&
         usual_shard_name("", number, count) == ending;
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

bool is_shard_name(const std::string& stem, std::string_view name) {
  if (!name.starts_with(stem)) return false;
  const std::string ending(name.substr(stem.size()));
  constexpr std::size_t kIdEnd = 1 + kSetIdDigits;
  const bool has_id = ending.starts_with('-') && ending.find_first_not_of("0123456789abcdef", 1) == kIdEnd;
  return is_usual_ending(ending) || (has_id && is_usual_ending(ending.substr(kIdEnd)));
}

}  // namespace weightstore
