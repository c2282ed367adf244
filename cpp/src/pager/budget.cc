#include "pager/budget.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "weightstore/pager.h"

namespace weightstore {
namespace pager {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc()) return std::nullopt;  // also "max"
  return value;
}

// The number behind `key` at the start of a line.
std::optional<std::uint64_t> field(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t digit = line.find_first_of("0123456789", key.size());
    if (digit != std::string::npos) return number(std::string_view(line).substr(digit));
  }
  return std::nullopt;
}

// What one group leaves; kUnlimited when it sets no limit.
std::uint64_t left_in(const fs::path& group, const char* limit_file, const char* usage_file, std::string_view cache) {
  const auto limit = number(contents(group / limit_file));
  if (!limit) return kUnlimited;
  const std::uint64_t usage = number(contents(group / usage_file)).value_or(0);
  const std::uint64_t droppable = field(contents(group / "memory.stat"), cache).value_or(0);
  const std::uint64_t used = usage - std::min(usage, droppable);
  return *limit - std::min(*limit, used);
}

// The least of what a group and those above it leave.
template <class Left>
std::uint64_t least_upwards(const fs::path& mount, std::string_view group, Left left) {
  std::uint64_t least = kUnlimited;
  fs::path relative = fs::path(group).relative_path();
  for (;;) {
    least = std::min(least, left(relative.empty() ? mount : mount / relative));
    if (relative.empty()) return least;
    relative = relative.parent_path();
  }
}

}  // namespace

std::uint64_t available_memory(const fs::path& root) {
  std::uint64_t least = kUnlimited;
  if (const auto kib = field(contents(root / "proc/meminfo"), "MemAvailable:")) least = *kib * 1024;
  std::istringstream groups(contents(root / "proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      least = std::min(least, least_upwards(root / "sys/fs/cgroup", group, [](const fs::path& path) {
                         return left_in(path, "memory.max", "memory.current", "inactive_file");
                       }));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      least = std::min(least, least_upwards(root / "sys/fs/cgroup/memory", group, [](const fs::path& path) {
                         return left_in(path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
                       }));
    }
  }
  return least;
}

std::uint64_t budget_from(std::uint64_t available) {
  if (available == kUnlimited) return kUnlimited;
  constexpr std::uint64_t kLeast = std::uint64_t{256} << 20;
  return available - std::min(std::max(available / 10, kLeast), available / 2);
}

}  // namespace pager

std::uint64_t automatic_budget() { return pager::budget_from(pager::available_memory()); }

}  // namespace weightstore
