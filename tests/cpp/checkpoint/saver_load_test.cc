// Loading: any number of shards from any other, names, strictness, what is read.

#include <atomic>
#include <string>

#include "check.h"
#include "codec/json.h"
#include "saver_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"

using namespace weightstore;
using namespace saver_files;
using test_files::TempDir;
using test_files::write_file;

namespace {

constexpr std::uint64_t kDim = 3;

std::vector<std::int64_t> many_ids() {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 1500; ++i) ids.push_back(i * 104'729 - 50'000'000);  // negative ones too
  return ids;
}

void load(const std::filesystem::path& path, const Tables& tables, std::vector<LoadTarget> targets = {},
          LoadOptions options = {}, std::string info = "") {
  Loader loader(path, 3, tables, std::move(targets));
  loader.configure(options);
  loader.load(info.empty() ? loader.default_load_info() : info);
}

}  // namespace

TEST(every_row_arrives_once_whatever_the_shard_counts) {
  const std::vector<std::int64_t> ids = many_ids();
  for (const CheckpointLayout layout : {CheckpointLayout::kPlain, CheckpointLayout::kRecis}) {
    for (const std::int64_t from : {1, 2, 3, 5, 8}) {
      const TempDir dir;
      SaveOptions options;
      options.layout = layout;
      options.durable = false;
      options.max_block_bytes = layout == CheckpointLayout::kPlain ? 512 : 0;
      save_all(dir.path(), from, 2, options, [&](std::int64_t shard) {
        Tables tables = {table("user", kDim, static_cast<std::uint64_t>(shard), static_cast<std::uint64_t>(from))};
        fill(*tables[0], ids, kDim);
        return std::pair(tables, std::vector<NewTensor>());
      });
      for (const std::uint64_t to : {1, 2, 3, 5, 8}) {
        Rows all;
        std::uint64_t rows = 0;
        for (std::uint64_t shard = 0; shard < to; ++shard) {
          const auto part = table("user", kDim, shard, to);
          load(dir.path(), {part});
          rows += part->size();
          all.merge(rows_of(*part, kDim));
        }
        CHECK_EQ(rows, std::uint64_t{ids.size()});
        CHECK_EQ(all.size(), ids.size());
        for (const auto& [id, row] : all) CHECK_EQ(row, row_of(id, kDim));
      }
    }
  }
}

TEST(another_number_of_buckets_loads_by_id) {
  const TempDir dir;
  const auto whole = table("user", kDim, 0, 1);
  fill(*whole, many_ids(), kDim);
  Saver saver(0, 1, 2, dir.path());
  saver.save(saver.make_write_blocks(Tables{whole}, {}));
  std::uint64_t rows = 0;
  for (std::uint64_t shard = 0; shard < 3; ++shard) {
    TableOptions options;
    options.name = "user";
    options.shape = {kDim};
    options.buckets = shard_buckets(shard, 3, 1000);
    const auto part = std::make_shared<HashTable>(options);
    load(dir.path(), {part});
    rows += part->size();
  }
  CHECK_EQ(rows, std::uint64_t{1500});
}

TEST(one_of_eight_shards_reads_an_eighth) {
  const TempDir dir;
  const auto whole = table("user", 16, 0, 1);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 200'000; ++i) ids.push_back(i * 2'654'435'761);
  fill(*whole, ids, 16);
  Saver saver(0, 1, 2, dir.path());
  SaveOptions options;
  options.durable = false;
  options.max_block_bytes = 64 << 10;
  saver.configure(options);
  saver.save(saver.make_write_blocks(Tables{whole}, {}));
  std::uint64_t read_bytes = 0;
  LoadOptions counting;
  counting.progress = [&](std::uint64_t, std::uint64_t total, std::string_view) {
    read_bytes = total;  // of all parts that are opened
    return true;
  };
  const auto part = table("user", 16, 3, 8);
  load(dir.path(), {part}, {}, counting);
  const std::uint64_t all = ids.size() * (8 + 64);
  CHECK_EQ(part->size(), std::uint64_t{25'000});
  CHECK(read_bytes > 0);
  CHECK(read_bytes * 100 <= all * 100 / 8 + all * 15 / 8);
}

TEST(a_load_is_cancelled_while_it_runs_and_not_at_its_end) {
  const TempDir dir;
  const auto saved = table("user", kDim, 0, 1);
  fill(*saved, many_ids(), kDim);
  Saver saver(0, 1, 2, dir.path());
  saver.save(saver.make_write_blocks(Tables{saved}, {dense("w", DType::kU8, {2}, "ab")}));
  const auto target = table("user", kDim, 0, 1);
  std::string w(2, '-');
  const std::vector<LoadTarget> targets = {{"w", DType::kU8, {2}, std::as_writable_bytes(std::span(w))}};
  LoadOptions options;
  options.progress = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
  const Error error = CHECK_THROWS(Error, load(dir.path(), {target}, targets, options));
  CHECK(error.code() == ErrorCode::kCancelled);
  CHECK_EQ(target->size(), std::uint64_t{0});
  options.progress = [](std::uint64_t done, std::uint64_t total, std::string_view) { return done < total; };
  load(dir.path(), {target}, targets, options);
  CHECK_EQ(target->size(), std::uint64_t{1500});
}

// Looking for each of them in the files would take hours.
TEST(an_index_may_name_columns_and_bucket_ranges_that_are_not_there) {
  const TempDir dir;
  Writer writer;
  const std::vector<std::int64_t> ids = {7};
  writer.add("t.id/0-1-1", DType::kI64, {1}, table_values::bytes_of(ids));
  writer.add("t.id/00-1-1", DType::kI64, {1}, table_values::bytes_of(ids));
  writer.add("t.id/1-0-1", DType::kI64, {1}, table_values::bytes_of(ids));
  writer.write_file(dir / "a.safetensors");
  std::string slots = R"("id")";
  std::string ranges = "[0,1,1]";
  for (int i = 0; i < 100'000; ++i) {
    slots += R"(,"s)" + std::to_string(i) + R"(")";
    ranges += ",[0,1," + std::to_string(i + 2) + "]";
  }
  write_file(dir / "model.safetensors.index.json",
             R"({"metadata":{"weightstore":{"version":1,"files":{},"tables":{"t":{"slots":[)" + slots +
                 R"(],"slices":[)" + ranges +
                 R"(]}}}},"weight_map":{"t.id/0-1-1":"a.safetensors","t.id/00-1-1":"a.safetensors",)"
                 R"("t.id/1-0-1":"a.safetensors"}})");
  const CheckpointReader reader(dir.path());
  CHECK_EQ(reader.tensor_names(), (std::vector<std::string>{"t.id/00-1-1", "t.id/1-0-1", "t@id"}));
}

TEST(slots_children_and_erased_rows_come_back) {
  for (const CheckpointLayout layout : {CheckpointLayout::kPlain, CheckpointLayout::kRecis}) {
    const TempDir dir;
    const auto make = [] {
      TableOptions options;
      options.name = "CoalescedHashtable";
      options.shape = {2};
      options.children = {"user", "item"};
      auto made = std::make_shared<HashTable>(options);
      made->add_slot("step_filter", {1}, DType::kI64);
      return made;
    };
    const auto table = make();
    const std::vector<std::int64_t> ids = {coalesced_id(0, 5), coalesced_id(1, 5), coalesced_id(1, 6)};
    const std::vector<float> rows = {1, 2, 3, 4, 5, 6};
    const std::vector<std::int64_t> steps = {7, 8, 9};
    table->insert(ids, table_values::bytes_of(rows));
    table->write_slot(1, ids, table_values::bytes_of(steps));
    table->erase(std::vector<std::int64_t>{ids[2]});
    SaveOptions options;
    options.layout = layout;
    Saver saver(0, 1, 3, dir.path());
    saver.configure(options);
    saver.save(saver.make_write_blocks(Tables{table}, {}));
    const CheckpointReader reader(dir.path());
    CHECK_EQ(reader.tensor_names(), (std::vector<std::string>{"item@embedding", "item@id", "item@step_filter",
                                                              "user@embedding", "user@id", "user@step_filter"}));
    CHECK_EQ(reader.info("item@step_filter").shape, (Shape{1, 1}));
    const auto back = make();
    load(dir.path(), {back});
    CHECK_EQ(back->size(), std::uint64_t{2});
    CHECK_EQ(table_values::read_slot<std::int64_t>(*back, 1, ids), (std::vector<std::int64_t>{7, 8, 0}));
    CHECK_EQ(table_values::lookup(*back, ids, 2), (std::vector<float>{1, 2, 3, 4, 0, 0}));
  }
}

TEST(loading_is_an_upsert_and_an_empty_table_is_one) {
  const TempDir dir;
  const auto saved = table("user", 1, 0, 1);
  const auto nobody = table("nobody", 1, 0, 1);
  fill(*saved, {1, 2}, 1);
  Saver saver(0, 1, 1, dir.path());
  saver.save(saver.make_write_blocks(Tables{saved, nobody}, {}));
  const auto target = table("user", 1, 0, 1);
  target->insert(std::vector<std::int64_t>{2, 3}, table_values::bytes_of(std::vector<float>{-1, -1}));
  const auto empty = table("nobody", 1, 0, 1);
  load(dir.path(), {target, empty});
  CHECK_EQ(rows_of(*target, 1), (Rows{{1, {1}}, {2, {2}}, {3, {-1}}}));
  CHECK_EQ(empty->size(), std::uint64_t{0});
}

TEST(names_of_all_kinds) {
  const std::vector<std::string> plain_names = {"a^b", "w^ ", "x/part_0_2^ "};
  const std::vector<std::string> all_names = {
      "w",   "w2", "a@b", "x/part_0_2", "a.b.c", "with space", "\xC3\xBC\xE6\xBC\xA2", "/", "user.id/0-65536-65536x",
      "\"\\"};
  for (const CheckpointLayout layout : {CheckpointLayout::kPlain, CheckpointLayout::kRecis}) {
    const TempDir dir;
    const bool plain = layout == CheckpointLayout::kPlain;
    std::vector<std::string> names = all_names;
    if (plain) names.insert(names.end(), plain_names.begin(), plain_names.end());
    const std::string table_name = std::string(plain ? "a^b" : "ab") + "/part_1_2 \xC3\xBC";
    std::vector<NewTensor> tensors;
    for (const std::string& name : names) tensors.push_back(dense(name, DType::kU8, {name.size()}, name));
    const auto odd = table(table_name, 1, 0, 1);
    fill(*odd, {4}, 1);
    SaveOptions options;
    options.layout = layout;
    Saver saver(0, 1, 4, dir.path());
    saver.configure(options);
    saver.save(saver.make_write_blocks(Tables{odd}, tensors));
    const CheckpointReader reader(dir.path());
    CHECK_EQ(reader.tensor_names().size(), names.size() + 2);
    for (const std::string& name : names) CHECK_EQ(read(reader, name), name);
    const auto back = table(table_name, 1, 0, 1);
    load(dir.path(), {back}, {}, {false, Verify::kOff, {}});
    CHECK_EQ(back->size(), std::uint64_t{1});
  }
}

TEST(renaming_and_filtering) {
  const TempDir dir;
  const auto saved = table("user", 1, 0, 1);
  fill(*saved, {1}, 1);
  Saver saver(0, 1, 1, dir.path());
  saver.save(saver.make_write_blocks(Tables{saved}, {dense("w", DType::kU8, {2}, "ab")}));
  const auto target = table("client", 1, 0, 1);
  std::string w2(2, '-');
  load(dir.path(), {target}, {{"w2", DType::kU8, {2}, std::as_writable_bytes(std::span(w2))}}, {},
       R"({"client":{"user":["id","embedding"]},"w2":{"w":[]}})");
  CHECK_EQ(w2, "ab");
  CHECK_EQ(rows_of(*target, 1), (Rows{{1, {1}}}));
  std::string untouched(2, '-');
  load(dir.path(), {target}, {{"w", DType::kU8, {2}, std::as_writable_bytes(std::span(untouched))}}, {},
       R"({"client":{"user":["id"]}})");
  CHECK_EQ(untouched, "--");
}

TEST(all_differences_are_told_at_once_and_nothing_is_changed) {
  const TempDir dir;
  const auto saved = table("user", 2, 0, 1);
  fill(*saved, {1}, 2);
  Saver saver(0, 1, 1, dir.path());
  saver.save(
      saver.make_write_blocks(Tables{saved}, {dense("w", DType::kU8, {2}, "ab"), dense("more", DType::kU8, {1}, "x")}));
  const auto target = table("user", 3, 0, 1);
  std::string w(4, '-');
  std::string gone(1, '-');
  const std::vector<LoadTarget> targets = {{"w", DType::kF32, {1}, std::as_writable_bytes(std::span(w))},
                                           {"gone", DType::kU8, {1}, std::as_writable_bytes(std::span(gone))}};
  const Error error = CHECK_THROWS(Error, load(dir.path(), {target}, targets));
  const std::string text = error.what();
  for (const char* part :
       {"'w' in ", "is U8 [2], its target F32 [1]", "'user@embedding' in ", "rows of F32 [2], its target F32 [3]",
        "missing in the checkpoint: 'gone'", "unexpected in the checkpoint: 'more'"}) {
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK_EQ(w, "----");
  CHECK_EQ(target->size(), std::uint64_t{0});
  load(dir.path(), {}, {targets[1]}, {false, Verify::kOff, {}});
  CHECK_EQ(gone, "-");
}

TEST(rows_of_a_cut_column) {
  const TempDir dir;
  save_cut_table(dir.path());
  const CheckpointReader reader(dir.path());
  const std::string whole = read(reader, "user@embedding");
  for (std::uint64_t begin = 0; begin <= 64; begin += 7) {
    std::string part((64 - begin) * 8, '\0');
    reader.read_rows("user@embedding", begin, 64, std::as_writable_bytes(std::span(part)));
    CHECK_EQ(part, whole.substr(begin * 8));
  }
  std::string none;
  CHECK_THROWS(Error, reader.read_rows("user@embedding", 3, 65, std::as_writable_bytes(std::span(none))));
  CHECK_THROWS(Error, reader.info("user"));
}

TEST(damage_is_found) {
  const TempDir dir;
  Saver saver(0, 1, 1, dir.path());
  saver.save(saver.make_write_blocks({}, {dense("w", DType::kU8, {5}, "hello")}));
  CHECK_EQ(CheckpointReader(dir.path()).verify(), std::size_t{1});
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    if (!entry.path().native().ends_with(".safetensors")) continue;
    std::string bytes = test_files::read_file(entry.path());
    bytes.back() = 'X';
    write_file(entry.path(), bytes);
    CHECK(CHECK_THROWS(Error, CheckpointReader(dir.path()).verify()).code() == ErrorCode::kCorrupt);
    bytes.pop_back();
    write_file(entry.path(), bytes);
    CHECK_THROWS(Error, CheckpointReader(dir.path()));
  }
}

TEST(sets_of_other_tools_and_single_files) {
  const TempDir dir;
  Writer writer;
  writer.add("a", DType::kU8, {2}, test_files::as_bytes("ab"));
  writer.add("b", DType::kU8, {2}, test_files::as_bytes("cd"));
  std::filesystem::create_directory(dir / "hf");
  writer.write_shards(dir / "hf/model.safetensors.index.json", 2);
  std::filesystem::create_directory(dir / "one");
  writer.write_file(dir / "one/model.safetensors");
  for (const char* path : {"hf", "hf/model.safetensors.index.json", "one", "one/model.safetensors"}) {
    std::string b(2, '-');
    load(dir / path, {}, {{"b", DType::kU8, {2}, std::as_writable_bytes(std::span(b))}}, {false, Verify::kOff, {}});
    CHECK_EQ(b, "cd");
  }
  CHECK_THROWS(Error, CheckpointReader(dir.path()));
}

// As RecIS writes: cut by nobody, ids and rows in files of their own.
TEST(a_checkpoint_of_recis_loads) {
  const TempDir dir;
  Writer first;
  const std::vector<std::int64_t> ids = {10, 20};
  const std::vector<float> rows = {1, 2};
  first.add("user.id/part_0_1", DType::kI64, {2}, table_values::bytes_of(ids));
  first.add("w^ ", DType::kU8, {1}, test_files::as_bytes("w"));
  WriteOptions options;
  options.order = TensorOrder::kAsAdded;
  first.write_file(dir / "model-000000-of-000002.safetensors", options);
  Writer second;
  second.add("user.embedding/part_0_1", DType::kF32, {2, 1}, table_values::bytes_of(rows));
  second.write_file(dir / "model-000001-of-000002.safetensors", options);
  write_file(
      dir / "tensorkey.json",
      R"({"user.id/part_0_1": "user@id^00000@65536@65536", "user.embedding/part_0_1": "user@embedding^00000@65536@65536"})");
  write_file(dir / "index",
             R"({"block_index": {"user.id/part_0_1": 0, "w^ ": 0, "user.embedding/part_0_1": 1}, "file_index": )"
             R"({"model-000000-of-000002.safetensors": 0, "model-000001-of-000002.safetensors": 1}})");
  const auto user = table("user", 1, 0, 1);
  std::string w(1, '-');
  load(dir.path(), {user}, {{"w", DType::kU8, {1}, std::as_writable_bytes(std::span(w))}});
  CHECK_EQ(rows_of(*user, 1), (Rows{{10, {1}}, {20, {2}}}));
  CHECK_EQ(w, "w");
  // Rows of one number are [1] to RecIS; a table may have them as [].
  TableOptions scalar;
  scalar.name = "user";
  const auto numbers = std::make_shared<HashTable>(scalar);
  load(dir.path(), {numbers}, {}, {false, Verify::kOff, {}});
  CHECK_EQ(rows_of(*numbers, 1), (Rows{{10, {1}}, {20, {2}}}));
  write_file(dir / "index", R"({"block_index": {}, "file_index": {"../x.safetensors": 0}})");
  CHECK(CHECK_THROWS(Error, CheckpointReader(dir.path())).code() == ErrorCode::kCorrupt);
}

RUN_TESTS()
