// Every system call of opening, verifying and loading a checkpoint fails once. The caller gets the right values, or an
// Error that names a file.

#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "every_fault.h"
#include "saver_files.h"

using namespace weightstore;
using namespace saver_files;
using faulty::Call;
using faulty::FaultyFileOps;
using faulty::for_every_fault;
using faulty::kShort;
using test_files::TempDir;

namespace {

constexpr std::uint64_t kDim = 2;
constexpr int kErrors[] = {EIO, EACCES, ENOENT, EINTR, kShort};
const std::string kDense = test_files::pattern(5000);
const std::vector<std::int64_t> kIds = {1, 2, 3, 40'000, 50'000, -7};

void save(const std::filesystem::path& path, CheckpointLayout layout) {
  SaveOptions options;
  options.layout = layout;
  options.durable = false;
  save_all(path, 2, 1, options, [&](std::int64_t shard) {
    Tables tables = {table("user", kDim, static_cast<std::uint64_t>(shard), 2)};
    fill(*tables[0], kIds, kDim);
    return std::pair(tables, std::vector<NewTensor>{dense("w", DType::kU8, {kDense.size()}, kDense)});
  });
}

void check_reader(const std::filesystem::path& path, bool has_checksums) {
  const CheckpointReader reader(path);
  CHECK_EQ(reader.tensor_names().size(), 3u);
  CHECK(read(reader, "w") == kDense);
  CHECK_EQ(reader.info("user@embedding").shape.front(), kIds.size());
  if (has_checksums) CHECK(reader.verify() > 0);
}

void check_load(const std::filesystem::path& path) {
  const auto user = table("user", kDim, 0, 1);
  std::string out(kDense.size(), '?');
  Loader loader(path, 2, {user}, {{"w", DType::kU8, {out.size()}, std::as_writable_bytes(std::span(out))}});
  loader.load(loader.default_load_info());
  CHECK(out == kDense);
  const Rows rows = rows_of(*user, kDim);
  CHECK_EQ(rows.size(), kIds.size());
  for (const auto& [id, row] : rows) CHECK_EQ(row, row_of(id, kDim));
}

// Calls read(path, layout) on a checkpoint of each layout, with every call failing in each way.
template <class Read>
void fail_every_call(const Read& read) {
  for (const CheckpointLayout layout : {CheckpointLayout::kPlain, CheckpointLayout::kRecis}) {
    const TempDir dir;
    save(dir / "ckpt", layout);
    const auto operation = [&](io::FileOps& ops) {
      const io::FileOpsScope scope(ops);
      read(dir / "ckpt", layout);
    };
    for (const int error : kErrors) CHECK(for_every_fault(error, operation, [](bool) {}) > 10);
  }
}

}  // namespace

TEST(every_call_of_a_checkpoint_reader_fails_once) {
  fail_every_call([](const std::filesystem::path& path, CheckpointLayout layout) {
    check_reader(path, layout == CheckpointLayout::kPlain);
  });
}

TEST(every_call_of_a_load_fails_once) {
  fail_every_call([](const std::filesystem::path& path, CheckpointLayout) { check_load(path); });
}

TEST(a_directory_that_cannot_be_looked_at_does_not_look_empty) {
  const TempDir dir;
  save(dir / "ckpt", CheckpointLayout::kPlain);
  FaultyFileOps ops({.at = 1, .kind = Call::kStat, .error = EACCES, .onwards = true});
  const io::FileOpsScope scope(ops);
  const Error error = CHECK_THROWS(Error, CheckpointReader(dir / "ckpt"));
  CHECK_EQ(error.os_errno(), EACCES);
  CHECK(std::string(error.what()).find("no checkpoint") == std::string::npos);
}

RUN_TESTS()
