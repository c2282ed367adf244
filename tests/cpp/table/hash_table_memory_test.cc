// What tables and snapshots take. Sanitizers have memory of their own, so that these are checked without them only.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <numeric>

#include "check.h"
#include "table_values.h"
#include "weightstore/error.h"
#include "weightstore/hash_table.h"

using namespace weightstore;
using namespace table_values;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMeasured = false;
#else
constexpr bool kMeasured = true;
#endif

constexpr std::size_t kMegabyte = std::size_t{1} << 20;
constexpr std::size_t kDim = 16;
constexpr std::size_t kRows = std::size_t{1} << 20;
constexpr std::size_t kTableBytes = kRows * kDim * sizeof(float);

std::int64_t resident_bytes() {
  long pages = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  CHECK(file != nullptr);
  const int read = std::fscanf(file, "%*d %ld", &pages);
  std::fclose(file);
  CHECK_EQ(read, 1);
  return pages * ::sysconf(_SC_PAGESIZE);
}

void check_growth(std::int64_t before, std::size_t most) {
  if (kMeasured) CHECK(resident_bytes() - before <= static_cast<std::int64_t>(most));
}

long faults() {
  rusage usage{};
  CHECK_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  return usage.ru_minflt;
}

// Lets the process have only so many bytes of addresses more than it has.
class AddressLimit {
 public:
  explicit AddressLimit(std::size_t more) {
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    CHECK_EQ(::getrlimit(RLIMIT_AS, &before_), 0);
    const rlimit limit{static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE)) + more, before_.rlim_max};
    CHECK_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~AddressLimit() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

void fill(HashTable& table, float value) {
  constexpr std::size_t kBatch = 8192;
  const Floats rows(kBatch * kDim, value);
  Ids ids(kBatch);
  for (std::size_t first = 0; first < kRows; first += kBatch) {
    for (std::size_t i = 0; i < kBatch; ++i) ids[i] = static_cast<std::int64_t>((first + i) * 0x9E3779B97F4A7C15u);
    table.insert(ids, bytes_of(rows));
  }
}

}  // namespace

TEST(a_small_table_is_small) {
  const std::int64_t before = resident_bytes();
  HashTable table(options(kDim, 4096));
  table.add_slot("exp_avg", {kDim}, DType::kF32);
  table.add_slot("exp_avg_sq", {kDim}, DType::kF32);
  Ids ids(200);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * 997);
  lookup(table, ids, kDim, true);
  check_growth(before, 4 * kMegabyte);
}

// Pages of small tables are nearly empty: a copy of one takes what its rows take.
TEST(a_small_table_stays_small_after_snapshots) {
  HashTable table(options(kDim, 4096));
  table.add_slot("exp_avg", {kDim}, DType::kF32);
  table.add_slot("exp_avg_sq", {kDim}, DType::kF32);
  Ids ids(200);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * 997);
  const Floats rows(ids.size() * kDim, 1);
  lookup(table, ids, kDim, true);
  const std::int64_t before = resident_bytes();
  for (int round = 0; round < 4; ++round) {
    const auto snapshot = table.snapshot();
    for (const std::size_t slot : {0u, 1u, 2u}) table.write_slot(slot, ids, bytes_of(rows));
    check_growth(before, 3 * kMegabyte);  // 192 pages of 4 KiB; whole pages of the table would be 48 MiB
  }
  check_growth(before, kMegabyte);
  CHECK(lookup(table, ids, kDim) == rows);
}

TEST(what_is_reserved_takes_memory_when_it_is_used) {
  HashTable table(options(kDim, 4096));
  Ids ids(64);  // one in every stripe
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * 1024);
  lookup(table, ids, kDim, true);
  const std::int64_t before = resident_bytes();
  table.reserve(20'000'000);
  check_growth(before, 160 * kMegabyte);  // of 512 a huge page each
  CHECK_EQ(table.size(), ids.size());
}

TEST(an_empty_table_is_empty_however_much_is_reserved) {
  HashTable table(options(kDim, 4096));
  table.reserve(20'000'000);
  const long before = faults();
  CHECK(table.changed_since(0).changed.empty());
  table.add_slot("moment", {1}, DType::kF32);
  if (kMeasured) CHECK(faults() - before < 64);  // one a stripe would be that
}

TEST(a_table_outlives_a_reserve_that_is_too_much) {
  if (!kMeasured) return;
  TableOptions serial = options(kDim, 4096);
  serial.threads = 1;
  HashTable table(serial);
  lookup(table, {1}, kDim, true);
  {
    const AddressLimit limit(512 * kMegabyte);
    const Error error = CHECK_THROWS(Error, table.reserve(100'000'000));
    CHECK(error.code() == ErrorCode::kLimit);
    CHECK(std::string(error.what()).find("100000000 rows") != std::string::npos);
    // Nothing of it is kept: there is room for what is needed.
    Ids ids(100'000);
    std::iota(ids.begin(), ids.end(), 0);
    lookup(table, ids, kDim, true);
  }
  CHECK_EQ(table.size(), 100'000u);
}

// The system lets a process have some ten thousand.
TEST(a_large_table_has_few_mappings) {
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  };
  TableOptions wide = options(64, 4096);
  wide.stripes = 1;
  HashTable table(wide);
  Ids ids(8192);
  const Floats rows(ids.size() * 64);
  const auto before = mappings();
  for (std::int64_t first = 0; first < 1 << 20; first += 8192) {
    std::iota(ids.begin(), ids.end(), first);
    table.insert(ids, bytes_of(rows));
  }
  if (kMeasured) CHECK(mappings() - before <= 64);  // for 264 MB: one for each huge page would be 132
}

TEST(a_snapshot_takes_what_is_written_meanwhile) {
  HashTable table(options(kDim, 4096));
  fill(table, 1);
  const std::int64_t before = resident_bytes();
  {
    const auto snapshot = table.snapshot();
    check_growth(before, 2 * kMegabyte);

    const auto producer = snapshot->slot(0, 0, snapshot->all_stripes());
    CHECK_EQ(producer->size(), kTableBytes);
    std::vector<std::byte> block(kMegabyte);
    for (std::size_t done = 0; done < kTableBytes; done += block.size()) producer->fill(done, block);
    check_growth(before, 4 * kMegabyte);

    table.insert(Ids{0}, bytes_of(Floats(kDim, 2)));
    check_growth(before, 8 * kMegabyte);
    fill(table, 2);
    check_growth(before, kTableBytes + 24 * kMegabyte);
    if (kMeasured) CHECK(resident_bytes() - before >= static_cast<std::int64_t>(kTableBytes / 2));
    producer->fill(0, block);
    CHECK_EQ(reinterpret_cast<const float*>(block.data())[7], 1.0f);
  }
  check_growth(before, 24 * kMegabyte);
}

// Snapshot after snapshot, each outlived by changes: nothing adds up.
TEST(memory_of_old_snapshots_comes_back) {
  HashTable table(options(kDim, 4096));
  fill(table, 1);
  const std::int64_t before = resident_bytes();
  for (int round = 0; round < 4; ++round) {
    const auto snapshot = table.snapshot();
    fill(table, static_cast<float>(round));
  }
  check_growth(before, 24 * kMegabyte);
}

RUN_TESTS()
