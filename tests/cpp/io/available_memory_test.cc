// How much memory a process may take, from a /proc and a /sys that are made up.

#include "io/available_memory.h"

#include <string>
#include <string_view>

#include "check.h"
#include "test_files.h"
#include "weightstore/error.h"

using namespace weightstore;
using io::available_memory;
using io::Swap;

namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

class Machine {
 public:
  void put(const std::string& path, const std::string& text) {
    const auto full = root_.path() / path;
    std::filesystem::create_directories(full.parent_path());
    test_files::write_file(full, text + "\n");
  }
  void put(const std::string& path, std::uint64_t number) { put(path, std::to_string(number)); }
  void put_meminfo(std::uint64_t available, std::uint64_t swap_free) {
    put("proc/meminfo",
        "MemTotal:       33554432 kB\nMemFree:  5 kB\nMemAvailable:   " + std::to_string(available / 1024) +
            " kB\nSwapCached: 7 kB\nSwapFree: " + std::to_string(swap_free / 1024) + " kB");
  }
  std::uint64_t available(Swap swap = Swap::kCounts) const { return available_memory(swap, root_.path()); }

 private:
  test_files::TempDir root_;
};

}  // namespace

TEST(a_system_that_says_nothing_has_unknown_memory) { CHECK_EQ(Machine().available(), io::kUnknownMemory); }

TEST(the_machine_has_memory_and_swap) {
  Machine machine;
  machine.put_meminfo(16 * kGiB, 2 * kGiB);
  CHECK_EQ(machine.available(), 18 * kGiB);
  CHECK_EQ(machine.available(Swap::kIgnored), 16 * kGiB);
}

// ZFS keeps its cache outside of the page cache, so MemAvailable leaves it out.
TEST(the_cache_of_zfs_is_available_but_for_its_least_size) {
  Machine machine;
  machine.put_meminfo(4 * kGiB, kGiB);
  const auto put_cache = [&](std::uint64_t size, std::uint64_t least) {
    machine.put("proc/spl/kstat/zfs/arcstats",
                "13 1 0x01 147 39984 5412345678 9912345678901\nname                            type data\n"
                "hits                            4    7\nc                               4    " +
                    std::to_string(9 * kGiB) + "\nc_min                           4    " + std::to_string(least) +
                    "\nc_max                           4    99\nsize                            4    " +
                    std::to_string(size) + "\ncompressed_size                 4    5\narc_meta_used 4 1");
  };
  put_cache(8 * kGiB, 2 * kGiB);
  CHECK_EQ(machine.available(), 11 * kGiB);
  CHECK_EQ(machine.available(Swap::kIgnored), 10 * kGiB);
  // A control group does not own that cache.
  machine.put("proc/self/cgroup", "0::/a");
  machine.put("sys/fs/cgroup/a/memory.max", 3 * kGiB);
  CHECK_EQ(machine.available(Swap::kIgnored), 3 * kGiB);
  put_cache(kGiB, 2 * kGiB);
  machine.put("sys/fs/cgroup/a/memory.max", "max");
  CHECK_EQ(machine.available(Swap::kIgnored), 4 * kGiB);
  machine.put("proc/spl/kstat/zfs/arcstats", "nonsense\nsize\nc_min 4");
  CHECK_EQ(machine.available(Swap::kIgnored), 4 * kGiB);
}

TEST(version_2_leaves_its_limit_less_what_cannot_be_reclaimed) {
  Machine machine;
  machine.put_meminfo(16 * kGiB, 0);
  machine.put("proc/self/cgroup", "0::/a/b");
  machine.put("sys/fs/cgroup/a/b/memory.max", "max");
  CHECK_EQ(machine.available(), 16 * kGiB);
  // The limit of the group above holds, too.
  machine.put("sys/fs/cgroup/a/memory.max", 8 * kGiB);
  machine.put("sys/fs/cgroup/a/memory.current", 8 * kGiB);
  CHECK_EQ(machine.available(), 0u);
  machine.put("sys/fs/cgroup/a/memory.stat", "anon 1\nfile 9999\nfile_mapped 9999\ninactive_anon 5\ninactive_file " +
                                                 std::to_string(kGiB) + "\nactive_file " + std::to_string(3 * kGiB) +
                                                 "\nslab_reclaimable " + std::to_string(kGiB) +
                                                 "\nslab_unreclaimable 77\nslab 99\nworkingset_refault_file 12");
  CHECK_EQ(machine.available(), 5 * kGiB);
}

TEST(version_2_limits_swap) {
  Machine machine;
  machine.put_meminfo(16 * kGiB, 10 * kGiB);
  machine.put("proc/self/cgroup", "0::/a");
  machine.put("sys/fs/cgroup/a/memory.max", 4 * kGiB);
  machine.put("sys/fs/cgroup/a/memory.current", kGiB);
  CHECK_EQ(machine.available(), 13 * kGiB);
  machine.put("sys/fs/cgroup/a/memory.swap.max", 3 * kGiB);
  machine.put("sys/fs/cgroup/a/memory.swap.current", kGiB);
  CHECK_EQ(machine.available(), 5 * kGiB);
  CHECK_EQ(machine.available(Swap::kIgnored), 3 * kGiB);
  machine.put("sys/fs/cgroup/a/memory.swap.max", 0);
  CHECK_EQ(machine.available(), 3 * kGiB);
  machine.put("sys/fs/cgroup/a/memory.swap.max", "max");
  CHECK_EQ(machine.available(), 13 * kGiB);
}

TEST(version_1_leaves_its_limit_less_what_cannot_be_reclaimed) {
  Machine machine;
  machine.put_meminfo(16 * kGiB, 2 * kGiB);
  machine.put("proc/self/cgroup", "5:cpu:/\n4:hugetlb,memory:/job\n0::/");
  const std::string group = "sys/fs/cgroup/memory/job/";
  machine.put(group + "memory.limit_in_bytes", 9223372036854771712u);
  machine.put(group + "memory.usage_in_bytes", 5 * kGiB);
  CHECK_EQ(machine.available(), 18 * kGiB);
  machine.put(group + "memory.limit_in_bytes", 5 * kGiB);
  CHECK_EQ(machine.available(Swap::kIgnored), 0u);
  machine.put(group + "memory.stat", "inactive_file 1\nactive_file 1\ntotal_inactive_file " + std::to_string(kGiB) +
                                         "\ntotal_active_file " + std::to_string(2 * kGiB));
  CHECK_EQ(machine.available(Swap::kIgnored), 3 * kGiB);
  CHECK_EQ(machine.available(), 5 * kGiB);
  // Memory and swap together.
  machine.put(group + "memory.memsw.limit_in_bytes", 6 * kGiB);
  machine.put(group + "memory.memsw.usage_in_bytes", 5 * kGiB);
  CHECK_EQ(machine.available(), 4 * kGiB);
}

TEST(a_group_never_leaves_more_than_the_machine_has) {
  Machine machine;
  machine.put_meminfo(2 * kGiB, kGiB);
  machine.put("proc/self/cgroup", "0::/a");
  machine.put("sys/fs/cgroup/a/memory.max", 100 * kGiB);
  CHECK_EQ(machine.available(), 3 * kGiB);
}

// In a container the mounted root is the group itself, whatever path the process is said to be in.
TEST(a_group_that_is_not_mounted_is_passed_over) {
  Machine machine;
  machine.put("proc/self/cgroup", "0::/docker/abc");
  machine.put("sys/fs/cgroup/memory.max", 2 * kGiB);
  machine.put("sys/fs/cgroup/memory.current", kGiB);
  CHECK_EQ(machine.available(), kGiB);
}

TEST(what_is_not_there_is_refused) {
  if (available_memory(Swap::kCounts) == io::kUnknownMemory) return;
  const auto error = CHECK_THROWS(Error, io::require_memory(std::uint64_t{1} << 60));
  CHECK(error.code() == ErrorCode::kMemory);
  CHECK_THROWS(Error, io::require_memory(~std::uint64_t{0}));
  for (int i = 0; i < 1000; ++i) io::require_memory(1 << 20);
}

RUN_TESTS()
