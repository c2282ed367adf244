#include "sharded/process_start.h"

#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

namespace weightstore::sharded {
namespace {

constexpr int kStartField = 22;  // of /proc/self/stat, as proc(5) counts them: in clock ticks since the machine booted

// 0 where it is not said.
std::uint64_t ticks_to_start(const std::string& stat) {
  // The name of the program is in parentheses, and may have spaces and parentheses itself; behind it is field 3.
  std::size_t at = stat.rfind(')');
  for (int field = 2; field < kStartField && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(stat.c_str() + at, nullptr, 10);
}

std::uint64_t find_process_start() {
  const std::uint64_t now = now_ms();
  timespec up;
  const long ticks_per_second = ::sysconf(_SC_CLK_TCK);
  std::string stat;
  std::getline(std::ifstream("/proc/self/stat"), stat);
  const std::uint64_t ticks = ticks_to_start(stat);
  if (ticks == 0 || ticks_per_second <= 0 || ::clock_gettime(CLOCK_BOOTTIME, &up) != 0) return now;
  const std::uint64_t started = ticks * 1000 / static_cast<std::uint64_t>(ticks_per_second);
  const std::uint64_t uptime =
      static_cast<std::uint64_t>(up.tv_sec) * 1000 + static_cast<std::uint64_t>(up.tv_nsec) / 1'000'000;
  return started < uptime ? now - (uptime - started) : now;
}

// Found while the library is loaded, so that it is there before anybody forks.
const std::uint64_t kProcessStart = find_process_start();

}  // namespace

std::uint64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

std::uint64_t process_start_ms() { return kProcessStart; }

}  // namespace weightstore::sharded
