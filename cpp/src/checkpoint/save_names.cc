#include "checkpoint/save_names.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "io/paths.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

constexpr std::size_t kMaxRun = 256;
constexpr std::string_view kDataSuffix = ".safetensors";
constexpr std::string_view kRecordSuffix = ".json";

std::string numbered(const char* pattern, std::uint64_t n) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), pattern, static_cast<unsigned long long>(n));
  return text.data();
}

// If `text` ends in `mark` and digits, removes both.
bool remove_number(std::string_view& text, std::string_view mark) {
  const std::size_t digits = text.find_last_not_of("0123456789") + 1;
  if (digits == text.size() || !text.substr(0, digits).ends_with(mark)) return false;
  text = text.substr(0, digits - mark.size());
  return true;
}

// The token, or the temporary file of one. An attempt may be called "token" or "token.1", too.
bool is_token(std::string_view name) {
  if (!name.starts_with(kToken)) return false;
  name.remove_prefix(std::string_view(kToken).size());
  return name.empty() || (name.starts_with('.') && name.find_first_not_of("0123456789abcdef", 1) == name.npos);
}

}  // namespace

bool is_attempt(std::string_view text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !text.empty() && text.size() <= kMaxAttempt && text.find_first_not_of(kAllowed) == std::string_view::npos;
}

void check_attempt(std::string_view attempt) {
  if (is_attempt(attempt)) return;
  throw Error(ErrorCode::kInvalidArgument,
              "the attempt '" + printable(attempt) +
                  "' must be 1 to 64 letters, digits, '-', '_' and '.', such as \"step-1000\"");
}

void check_run(std::string_view run) {
  if (run.size() <= kMaxRun && run.find('\n') == std::string_view::npos) return;
  throw Error(ErrorCode::kInvalidArgument,
              "the run '" + printable(run) + "' must be one line of at most " + std::to_string(kMaxRun) + " bytes");
}

std::string protocol_name(const std::string& rest) { return kHiddenPrefix + rest; }

std::string record_name(std::string_view attempt, std::uint64_t shard) {
  return protocol_name(std::string(attempt) + numbered("-s%05llu", shard) + std::string(kRecordSuffix));
}

bool is_data_name(std::string_view name) {
  return name.find('/') == std::string_view::npos && name.ends_with(kDataSuffix);
}

std::string data_name(std::string_view prefix, std::string_view attempt, unsigned attempt_try, std::uint64_t shard,
                      std::uint64_t file) {
  return std::string(prefix) + std::string(attempt) + (attempt_try > 1 ? "~" + std::to_string(attempt_try) : "") +
         numbered("-s%05llu", shard) + numbered("-f%05llu", file) + std::string(kDataSuffix);
}

std::optional<std::string> attempt_of_name(std::string_view name) {
  if (name == kLock || is_token(name) || name == kJournal) return std::string();
  const bool hidden = name.starts_with(kHiddenPrefix);
  if (!hidden && !name.starts_with(kPlainPrefix)) return std::nullopt;
  name.remove_prefix(std::string_view(hidden ? kHiddenPrefix : kPlainPrefix).size());
  if (name.ends_with(kDataSuffix)) {
    name.remove_suffix(kDataSuffix.size());
    if (!remove_number(name, "-f") || !remove_number(name, "-s")) return std::nullopt;
    remove_number(name, "~");
  } else if (hidden && name.ends_with(kRecordSuffix)) {
    name.remove_suffix(kRecordSuffix.size());
    if (!remove_number(name, "-s")) return std::nullopt;
  } else {
    return std::nullopt;
  }
  if (!is_attempt(name)) return std::nullopt;
  return std::string(name);
}

unsigned next_try(const std::filesystem::path& directory, std::string_view prefix, std::string_view attempt,
                  std::uint64_t shard, io::FileOps& ops) {
  const std::vector<std::string> names = io::list_directory(directory, ops);
  for (unsigned n = 1;; ++n) {
    // The common beginning of the names of all files of the shard in this try.
    const std::string sample = data_name(prefix, attempt, n, shard, 0);
    const std::string stem = sample.substr(0, sample.rfind("-f") + 2);
    const auto is_taken = [&](const std::string& name) { return name.starts_with(stem); };
    if (std::none_of(names.begin(), names.end(), is_taken)) return n;
  }
}

}  // namespace weightstore::checkpoint
