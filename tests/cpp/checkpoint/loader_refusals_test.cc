// What a loader and a checkpoint reader refuse, and with which words; what they must not refuse.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "check.h"
#include "saver_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"

using namespace weightstore;
using namespace saver_files;
using test_files::TempDir;
using test_files::write_file;

namespace {

constexpr CheckpointLayout kLayouts[] = {CheckpointLayout::kPlain, CheckpointLayout::kRecis};
const std::string kIndex = "model.safetensors.index.json";

void save(const std::filesystem::path& path, const Tables& tables, std::vector<NewTensor> tensors = {},
          SaveOptions options = {}) {
  options.durable = false;
  Saver saver(0, 1, 2, path);
  saver.configure(options);
  saver.save(saver.make_write_blocks(tables, std::move(tensors)));
}

void load(const std::filesystem::path& path, const Tables& tables, std::vector<LoadTarget> targets = {},
          LoadOptions options = {}, std::string info = "") {
  Loader loader(path, 3, tables, std::move(targets));
  loader.configure(options);
  loader.load(info.empty() ? loader.default_load_info() : info);
}

LoadTarget target(std::string name, std::string& bytes) {
  return {std::move(name), DType::kU8, {bytes.size()}, std::as_writable_bytes(std::span(bytes))};
}

bool says(const Error& error, const std::string& part) {
  if (std::string(error.what()).find(part) != std::string::npos) return true;
  std::fprintf(stderr, "'%s' is not in: %s\n", part.c_str(), error.what());
  return false;
}

std::shared_ptr<HashTable> family(std::uint64_t shard = 0, std::uint64_t shard_num = 1) {
  TableOptions options;
  options.name = "family";
  options.shape = {1};
  options.children = {"user", "item"};
  options.buckets = shard_buckets(shard, shard_num);
  return std::make_shared<HashTable>(options);
}

// One table in two blocks of ids, which are said to be of the halves of the buckets.
void write_halves_to(const std::filesystem::path& file, const std::string& low_mark, const std::string& high_mark,
                     const std::vector<std::int64_t>& low, const std::vector<std::int64_t>& high) {
  const std::vector<float> low_rows(low.size(), 1);
  const std::vector<float> high_rows(high.size(), 2);
  Writer writer;
  writer.add("user.id/" + low_mark, DType::kI64, {low.size()}, table_values::bytes_of(low));
  writer.add("user.id/" + high_mark, DType::kI64, {high.size()}, table_values::bytes_of(high));
  writer.add("user.embedding/" + low_mark, DType::kF32, {low.size(), 1}, table_values::bytes_of(low_rows));
  writer.add("user.embedding/" + high_mark, DType::kF32, {high.size(), 1}, table_values::bytes_of(high_rows));
  std::filesystem::create_directories(file.parent_path());
  writer.write_file(file);
}

void write_plain_halves(const std::filesystem::path& path, const std::vector<std::int64_t>& low,
                        const std::vector<std::int64_t>& high) {
  write_halves_to(path / "a.safetensors", "0-32768-65536", "32768-65536-65536", low, high);
  std::string map;
  for (const char* key : {"user.id/0-32768-65536", "user.id/32768-65536-65536", "user.embedding/0-32768-65536",
                          "user.embedding/32768-65536-65536"}) {
    map += std::string(map.empty() ? "" : ", ") + "\"" + key + "\": \"a.safetensors\"";
  }
  write_file(
      path / kIndex,
      R"({"metadata": {"weightstore": {"version": 1, "files": {}, "tables": {"user": {"slots": ["id", "embedding"],)"
      R"("slices": [[0, 32768, 65536], [32768, 65536, 65536]]}}}}, "weight_map": {)" +
          map + "}}");
}

void write_recis_halves(const std::filesystem::path& path, const std::vector<std::int64_t>& low,
                        const std::vector<std::int64_t>& high) {
  write_halves_to(path / "model-000000-of-000001.safetensors", "part_0_2", "part_1_2", low, high);
  write_file(path / "tensorkey.json",
             R"({"user.id/part_0_2": "user@id^00000@32768@65536", "user.id/part_1_2": "user@id^32768@65536@65536",)"
             R"("user.embedding/part_0_2": "user@embedding^00000@32768@65536",)"
             R"("user.embedding/part_1_2": "user@embedding^32768@65536@65536"})");
  write_file(path / "index",
             R"({"block_index": {"user.id/part_0_2": 0, "user.id/part_1_2": 0, "user.embedding/part_0_2": 0,)"
             R"("user.embedding/part_1_2": 0}, "file_index": {"model-000000-of-000001.safetensors": 0}})");
}

// The same text with the first `from` replaced.
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  CHECK(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST(a_table_and_a_tensor_of_one_name) {
  const TempDir dir;
  std::string bytes(1, '-');
  const std::string text = "a table and a tensor both have this name";
  CHECK(says(CHECK_THROWS(Error, Loader(dir.path(), 1, {table("user", 1, 0, 1)}, {target("user", bytes)})), text));
  CHECK(says(CHECK_THROWS(Error, Loader(dir.path(), 1, {family()}, {target("item", bytes)})), text));
  for (const CheckpointLayout layout : kLayouts) {
    SaveOptions options;
    options.layout = layout;
    const Error error =
        CHECK_THROWS(Error, save(dir.path(), {table("user", 1, 0, 1)}, {dense("user", DType::kU8, {1}, "x")}, options));
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(says(error, text));
    CHECK(says(error, "'user'"));
  }
}

// Masked, two ids would become one.
TEST(ids_that_do_not_fit_a_child) {
  for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{1} << 52}) {
    const TempDir dir;
    const auto saved = table("item", 1, 0, 1);
    fill(*saved, {3, id}, 1);
    save(dir.path(), {saved});
    for (std::uint64_t shard = 0; shard < 2; ++shard) {
      const Error error = CHECK_THROWS(Error, load(dir.path(), {family(shard, 2)}, {}, {false, Verify::kOff, {}}));
      CHECK(error.code() == ErrorCode::kInvalidArgument);
      CHECK(says(error, std::to_string(id)));
      CHECK(says(error, "'item'"));
    }
    const auto whole = family();
    const std::vector<std::int64_t> ids = {3, id};
    const Error error = CHECK_THROWS(Error, whole->load_rows(1, ids, {}));
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(says(error, std::to_string(id)));
    CHECK(says(error, "'item'"));
    CHECK_EQ(whole->size(), std::uint64_t{0});
  }
}

// A swap may come between any two files that opening reads.
TEST(a_checkpoint_that_is_swapped_while_it_is_opened) {
  const TempDir dir;
  SaveOptions options;
  options.layout = CheckpointLayout::kRecis;
  const auto first = table("first", 1, 0, 1);
  const auto second = table("second", 1, 0, 1);
  save(dir / "now", {first}, {dense("a", DType::kU8, {1}, "a")}, options);
  save(dir / "other", {second}, {dense("b", DType::kU8, {1}, "b")}, options);
  const std::string now = dir / "now";
  const std::string other = dir / "other";
  for (int round = 0; round < 300; ++round) {
    std::atomic<bool> begun = false;
    // Once a round, at some time while it is opened: twice would bring back what was there at first.
    const std::jthread swapping([&] {
      begun = true;
      std::this_thread::sleep_for(std::chrono::microseconds(round % 30 * 20));
      ::renameat2(AT_FDCWD, now.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE);
    });
    while (!begun) std::this_thread::yield();
    const std::vector<std::string> names = CheckpointReader(now).tensor_names();
    CHECK((names == std::vector<std::string>{"a", "first@embedding", "first@id"} ||
           names == std::vector<std::string>{"b", "second@embedding", "second@id"}));
  }
}

TEST(verifying_what_has_no_checksums) {
  for (const bool recis : {true, false}) {
    const TempDir dir;
    SaveOptions options;
    if (recis) {
      options.layout = CheckpointLayout::kRecis;
    } else {
      options.checksums = false;
    }
    const auto saved = table("user", 1, 0, 1);
    fill(*saved, {1}, 1);
    save(dir.path(), {saved}, {dense("w", DType::kU8, {1}, "w")}, options);
    std::string w(1, '-');
    const auto back = table("user", 1, 0, 1);
    const Error error = CHECK_THROWS(Error, load(dir.path(), {back}, {target("w", w)}, {true, Verify::kFull, {}}));
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(says(error, ".safetensors"));
    CHECK(says(error, "no checksum"));
    CHECK_EQ(back->size(), std::uint64_t{0});
    CHECK_EQ(w, "-");
    load(dir.path(), {back}, {target("w", w)}, {true, Verify::kLazy, {}});
    CHECK_EQ(back->size(), std::uint64_t{1});
    CHECK_EQ(w, "w");
  }
  const TempDir dir;
  const auto saved = table("user", 1, 0, 1);
  fill(*saved, {1}, 1);
  save(dir.path(), {saved}, {dense("w", DType::kU8, {1}, "w")});
  std::string w(1, '-');
  load(dir.path(), {saved}, {target("w", w)}, {true, Verify::kFull, {}});
  CHECK_EQ(w, "w");
}

TEST(load_options_from_json_knows_the_words_of_verify) {
  const auto verify = [](std::string_view value) {
    return load_options_from_json(R"({"verify": )" + std::string(value) + "}", {}).verify;
  };
  CHECK(verify(R"("off")") == Verify::kOff && verify("false") == Verify::kOff);
  CHECK(verify(R"("lazy")") == Verify::kLazy);
  CHECK(verify(R"("full")") == Verify::kFull && verify("true") == Verify::kFull);
  for (const char* bad : {R"("maybe")", "1", "null"}) {
    const Error error = CHECK_THROWS(Error, verify(bad));
    CHECK(error.code() == ErrorCode::kInvalidArgument && says(error, R"("lazy")"));
  }
  CHECK(says(CHECK_THROWS(Error, load_options_from_json(R"({"strict": "yes"})", {})), "strict"));
  CHECK(says(CHECK_THROWS(Error, load_options_from_json(R"({"checksum": true})", {})), "'checksum' is not an option"));
}

TEST(an_index_of_another_version) {
  const TempDir dir;
  save(dir.path(), {}, {dense("w", DType::kU8, {1}, "w")});
  const std::string index = test_files::read_file(dir / kIndex);
  std::string w(1, '-');
  write_file(dir / kIndex, replaced(index, R"("version":1)", R"("version":2)"));
  for (const Error& error : {CHECK_THROWS(Error, CheckpointReader(dir.path())),
                             CHECK_THROWS(Error, load(dir.path(), {}, {target("w", w)}))}) {
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(says(error, "version 2"));
    CHECK(says(error, kIndex));
  }
  for (const char* bad : {R"("version":"1")", R"("virgin":1)"}) {
    write_file(dir / kIndex, replaced(index, R"("version":1)", bad));
    CHECK(CHECK_THROWS(Error, CheckpointReader(dir.path())).code() == ErrorCode::kCorrupt);
  }
}

TEST(metadata_of_others_under_our_name) {
  const TempDir dir;
  Writer writer;
  writer.add("w", DType::kU8, {1}, test_files::as_bytes("w"));
  for (const char* text : {"mine", "0.1", "{}", "{mine}"}) {
    writer.set_metadata("weightstore", text);
    writer.write_file(dir / "a.safetensors");
    CHECK_EQ(CheckpointReader(dir / "a.safetensors").tensor_names(), std::vector<std::string>{"w"});
  }
  writer.set_metadata("weightstore", "{mine}");
  writer.write_file(dir / "a.safetensors");
  for (const char* metadata :
       {R"({"weightstore": "mine"})", R"({"weightstore": 1})", R"({"weightstore": {"by": "me"}})", "{}"}) {
    write_file(dir / kIndex, R"({"metadata": )" + std::string(metadata) + R"(, "weight_map": {"w": "a.safetensors"}})");
    CHECK_EQ(CheckpointReader(dir.path()).tensor_names(), std::vector<std::string>{"w"});
    CHECK(CHECK_THROWS(Error, save(dir.path(), {}, {dense("w", DType::kU8, {1}, "w")})).code() == ErrorCode::kConflict);
  }
}

TEST(ids_outside_the_buckets_of_their_block) {
  const TempDir dir;
  write_plain_halves(dir / "good", {1, 2}, {40'000, -1});
  const Error unproven = CHECK_THROWS(Error, CheckpointReader(dir / "good").verify());
  CHECK(unproven.code() == ErrorCode::kUnsupported && says(unproven, "no checksum"));
  const auto whole = table("user", 1, 0, 1);
  load(dir / "good", {whole});
  CHECK_EQ(whole->size(), std::uint64_t{4});
  write_plain_halves(dir / "bad", {1, 40'001}, {40'000});
  const Error found = CHECK_THROWS(Error, CheckpointReader(dir / "bad").verify());
  const Error seen = CHECK_THROWS(Error, load(dir / "bad", {table("user", 1, 0, 1)}));
  const Error half = CHECK_THROWS(Error, load(dir / "bad", {table("user", 1, 0, 4)}));
  for (const Error& error : {found, seen, half}) {
    CHECK(error.code() == ErrorCode::kCorrupt);
    CHECK(says(error, "40001"));
    CHECK(says(error, "00000@32768@65536"));
    CHECK(says(error, "user.id/0-32768-65536"));
    CHECK(says(error, "a.safetensors"));
  }
}

// RecIS puts the id -1 where 1 is, and looks for it where 65535 is.
TEST(ids_that_recis_placed_by_another_rule) {
  const TempDir dir;
  write_recis_halves(dir.path(), {1, -1, 40'001}, {40'000, 2});
  CHECK_EQ(CheckpointReader(dir.path()).verify(), std::size_t{0});
  for (const std::uint64_t shards : {1, 2, 3, 8}) {
    std::uint64_t rows = 0;
    for (std::uint64_t shard = 0; shard < shards; ++shard) {
      const auto part = table("user", 1, shard, shards);
      load(dir.path(), {part});
      rows += part->size();
    }
    CHECK_EQ(rows, std::uint64_t{5});
  }
}

// Far more files than a process may have open, unless it asks for more.
TEST(more_files_than_descriptors) {
  const TempDir dir;
  constexpr int kFiles = 300;
  std::string map;
  for (int i = 0; i < kFiles; ++i) {
    const std::string name = "w" + std::to_string(i);
    Writer writer;
    writer.add(name, DType::kU8, {1}, test_files::as_bytes("x"));
    WriteOptions options;
    options.durable = false;
    writer.write_file(dir / (name + ".safetensors"), options);
    map += std::string(i > 0 ? "," : "") + "\"" + name + "\":\"" + name + ".safetensors\"";
  }
  write_file(dir / kIndex, R"({"metadata": {}, "weight_map": {)" + map + "}}");
  const auto outcome = [&](rlim_t soft, rlim_t hard) {
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit limit{soft, hard};
      int result = 1;
      try {
        if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) {
          result = CheckpointReader(dir.path()).tensor_names().size() == kFiles ? 0 : 2;
        }
      } catch (const Error& error) {
        const bool clear = error.code() == ErrorCode::kIo && error.os_errno() == EMFILE && says(error, "ulimit -n") &&
                           says(error, "300 files");
        result = clear ? 3 : 4;
      }
      ::_exit(result);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  CHECK_EQ(outcome(64, 1024), 0);
  CHECK_EQ(outcome(64, 64), 3);
}

TEST(errors_name_the_file) {
  const TempDir dir;
  write_recis_halves(dir.path(), {1}, {40'000});
  const std::string index = test_files::read_file(dir / "index");
  write_file(dir / "index", replaced(index, "file_index", "file_idx"));
  CHECK(says(CHECK_THROWS(Error, CheckpointReader(dir.path())), dir / "index"));
  write_file(dir / "index", index);
  const std::string keys = test_files::read_file(dir / "tensorkey.json");
  write_file(dir / "tensorkey.json", replaced(keys, "00000@32768", "00000@40000"));
  CHECK(says(CHECK_THROWS(Error, CheckpointReader(dir.path())), dir.path()));
  write_file(dir / "tensorkey.json",
             replaced(keys, "user@embedding^00000@32768@65536", "user@embedding^00000@32767@65536"));
  const CheckpointReader reader(dir.path());
  std::string out;
  const MutableBytes none = std::as_writable_bytes(std::span(out));
  CHECK(says(CHECK_THROWS(Error, reader.verify()), dir.path()));
  CHECK(says(CHECK_THROWS(Error, reader.info("gone")), dir.path()));
  CHECK(says(CHECK_THROWS(Error, reader.blocks("gone")), dir.path()));
  CHECK(says(CHECK_THROWS(Error, reader.read("gone", none)), dir.path()));
  CHECK(says(CHECK_THROWS(Error, reader.read("user@id", none)), dir.path()));
  CHECK(says(CHECK_THROWS(Error, reader.read_rows("user@id", 0, 9, none)), dir.path()));
}

TEST(names_in_errors_are_printable) {
  const TempDir dir;
  save(dir.path(), {}, {dense("w\n", DType::kU8, {1}, "w")});
  std::string w(2, '-');
  for (const char* info : {R"({"w\n": {}})", R"({"w\n": {"w\n": []}})", R"({"x\n": {"w\n": []}})",
                           R"({"user": {"w\n": ["id", "s\n"]}})", R"({"user": {"w\n": []}})"}) {
    const Error error = CHECK_THROWS(
        Error, load(dir.path(), {table("user", 1, 0, 1)}, {target("w\n", w)}, {false, Verify::kOff, {}}, info));
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
  }
}

TEST(a_column_as_a_dense_tensor) {
  const TempDir dir;
  save_cut_table(dir.path());
  std::string whole(64 * 8, '\0');
  load(dir.path(), {}, {{"user@embedding", DType::kF32, {64, 2}, std::as_writable_bytes(std::span(whole))}},
       {false, Verify::kOff, {}});
  CHECK_EQ(whole, read(CheckpointReader(dir.path()), "user@embedding"));
}

RUN_TESTS()
