#include "io/available_memory.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "base/checked.h"
#include "weightstore/error.h"

namespace weightstore::io {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kUnlimited = kUnknownMemory;
// Requests are added up to this before the system is asked again.
constexpr std::uint64_t kStep = std::uint64_t{64} << 20;

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

std::optional<std::uint64_t> number_in(const fs::path& path) { return number(contents(path)); }

// The number behind `key`, the first word of a line.
std::optional<std::uint64_t> field(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key) || line.find_first_of(" :", 0) != key.size()) continue;
    const std::size_t digit = line.find_first_of("0123456789", key.size());
    if (digit != std::string::npos) return number(std::string_view(line).substr(digit));
  }
  return std::nullopt;
}

std::uint64_t sum_of(const std::string& text, std::initializer_list<std::string_view> keys) {
  std::uint64_t sum = 0;
  for (const std::string_view key : keys) sum += field(text, key).value_or(0);
  return sum;
}

// A number in /proc/spl/kstat, whose lines are "<key> <type> <number>".
std::uint64_t kstat(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    std::string type;
    std::string value;
    if (words >> name >> type >> value && name == key) return number(value).value_or(0);
  }
  return 0;
}

std::uint64_t add(std::uint64_t a, std::uint64_t b) { return checked_add(a, b).value_or(kUnlimited); }
std::uint64_t less(std::uint64_t a, std::uint64_t b) { return a - std::min(a, b); }

// What ZFS gives back when memory is short: its cache (ARC), which is not page cache, down to its least size.
std::uint64_t reclaimable_by_zfs(const fs::path& root) {
  const std::string text = contents(root / "proc/spl/kstat/zfs/arcstats");
  return less(kstat(text, "size"), kstat(text, "c_min"));
}

// What one group leaves; kUnlimited when it sets no limit. `swap_free` is the machine's.

std::uint64_t left_in_v2(const fs::path& group, std::uint64_t swap_free) {
  const auto limit = number_in(group / "memory.max");
  if (!limit) return kUnlimited;
  const std::uint64_t reclaimable =
      sum_of(contents(group / "memory.stat"), {"inactive_file", "active_file", "slab_reclaimable"});
  const std::uint64_t used = less(number_in(group / "memory.current").value_or(0), reclaimable);
  const std::uint64_t swap_limit = number_in(group / "memory.swap.max").value_or(kUnlimited);
  const std::uint64_t swap = less(swap_limit, number_in(group / "memory.swap.current").value_or(0));
  return add(less(*limit, used), std::min(swap, swap_free));
}

std::uint64_t left_in_v1(const fs::path& group, std::uint64_t swap_free) {
  const auto limit = number_in(group / "memory.limit_in_bytes");
  if (!limit) return kUnlimited;
  const std::uint64_t reclaimable =
      sum_of(contents(group / "memory.stat"), {"total_inactive_file", "total_active_file"});
  const std::uint64_t used = less(number_in(group / "memory.usage_in_bytes").value_or(0), reclaimable);
  // A second limit is about memory and swap together.
  const std::uint64_t both_limit = number_in(group / "memory.memsw.limit_in_bytes").value_or(kUnlimited);
  const std::uint64_t both_used = less(number_in(group / "memory.memsw.usage_in_bytes").value_or(0), reclaimable);
  return std::min(add(less(*limit, used), swap_free), less(both_limit, both_used));
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

std::string in_mebibytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

std::uint64_t available_memory(Swap swap, const fs::path& root) {
  const std::string machine = contents(root / "proc/meminfo");
  const std::uint64_t swap_free = swap == Swap::kCounts ? field(machine, "SwapFree").value_or(0) * 1024 : 0;
  std::uint64_t least = kUnknownMemory;
  if (const auto kib = field(machine, "MemAvailable"))
    least = add(add(*kib * 1024, reclaimable_by_zfs(root)), swap_free);
  std::istringstream groups(contents(root / "proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      least = std::min(least, least_upwards(root / "sys/fs/cgroup", group,
                                            [&](const fs::path& path) { return left_in_v2(path, swap_free); }));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      least = std::min(least, least_upwards(root / "sys/fs/cgroup/memory", group,
                                            [&](const fs::path& path) { return left_in_v1(path, swap_free); }));
    }
  }
  return least;
}

void require_memory(std::uint64_t bytes) {
  // What may be taken before the system is asked again.
  static std::atomic<std::uint64_t> allowance{0};
  std::uint64_t left = allowance.load(std::memory_order_relaxed);
  while (bytes <= left) {
    if (allowance.compare_exchange_weak(left, left - bytes, std::memory_order_relaxed)) return;
  }
  const std::uint64_t available = available_memory(Swap::kCounts);
  // Page tables take a little more.
  const std::uint64_t needed = add(bytes, bytes / 256);
  if (needed > available) {
    throw Error(ErrorCode::kMemory, "needs " + in_mebibytes(bytes) + " of memory, but only " + in_mebibytes(available) +
                                        " are available; read fewer tensors at once, view the mapped file, or use a "
                                        "pager");
  }
  // Little is left, then little at a time.
  allowance.store(std::min(kStep, (available - needed) / 8), std::memory_order_relaxed);
}

}  // namespace weightstore::io
