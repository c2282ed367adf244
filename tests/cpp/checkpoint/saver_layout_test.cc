// What a save leaves on disk, in both layouts.

#include <map>
#include <set>
#include <string>

#include "check.h"
#include "codec/json.h"
#include "directory_listing.h"
#include "saver_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"

using namespace weightstore;
using namespace saver_files;
using directory_listing::names_in;
using test_files::read_file;
using test_files::TempDir;

namespace {

// Tables user (dim 4) and item (dim 2) with 10 ids each, half of them in either shard; dense w, b and step.
std::pair<Tables, std::vector<NewTensor>> worked_example(std::int64_t shard) {
  const std::vector<std::int64_t> ids = {1, 2, 3, 4, 5, 40001, 40002, 40003, 40004, 40005};
  const auto part = static_cast<std::uint64_t>(shard);
  Tables tables = {table("user", 4, part, 2), table("item", 2, part, 2)};
  fill(*tables[0], ids, 4);
  fill(*tables[1], ids, 2);
  return {tables,
          {dense("w", DType::kF32, {2, 3}, bytes_of<float>({1, 2, 3, 4, 5, 6})),
           dense("b", DType::kF32, {3}, bytes_of<float>({7, 8, 9})),
           dense("step", DType::kI64, {}, bytes_of<std::int64_t>({12}))}};
}

SaveOptions recis(std::string attempt = "") {
  SaveOptions options;
  options.layout = CheckpointLayout::kRecis;
  options.attempt = std::move(attempt);
  return options;
}

std::string header_of(const std::filesystem::path& path) {
  const std::string file = read_file(path);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  return file.substr(8, length);
}

std::string entries(const std::filesystem::path& path) {
  const Reader reader = Reader::open(path);
  std::string text;
  const std::uint64_t header = 8 + header_of(path).size();
  for (std::size_t i = 0; i < reader.table().size(); ++i) {
    const TensorInfo info = reader.table()[i];
    text += info.name + " " + std::string(name_of(info.dtype)) + " [";
    for (std::size_t d = 0; d < info.shape.size(); ++d) text += (d > 0 ? "," : "") + std::to_string(info.shape[d]);
    text += "] " + std::to_string(info.begin - header) + "-" + std::to_string(info.end - header) + "; ";
  }
  return text;
}

}  // namespace

TEST(recis_worked_example) {
  const TempDir dir;
  save_all(dir.path(), 2, 2, recis(), worked_example);
  CHECK_EQ(
      names_in(dir.path()),
      (std::vector<std::string>{"index", "model-000000-of-000004.safetensors", "model-000001-of-000004.safetensors",
                                "model-000002-of-000004.safetensors", "model-000003-of-000004.safetensors",
                                "tensorkey.json", "torch_rank_weights_embs_table_multi_shard.json"}));
  CHECK_EQ(
      entries(dir / "model-000000-of-000004.safetensors"),
      "user.id/part_0_2 I64 [5] 0-40; item.id/part_0_2 I64 [5] 40-80; w^  F32 [2,3] 80-104; step^  I64 [] 104-112; ");
  CHECK_EQ(entries(dir / "model-000001-of-000004.safetensors"),
           "user.embedding/part_0_2 F32 [5,4] 0-80; item.embedding/part_0_2 F32 [5,2] 80-120; b^  F32 [3] 120-132; ");
  CHECK_EQ(entries(dir / "model-000002-of-000004.safetensors"),
           "user.id/part_1_2 I64 [5] 0-40; item.id/part_1_2 I64 [5] 40-80; ");
  CHECK_EQ(entries(dir / "model-000003-of-000004.safetensors"),
           "user.embedding/part_1_2 F32 [5,4] 0-80; item.embedding/part_1_2 F32 [5,2] 80-120; ");
  CHECK_EQ(header_of(dir / "model-000000-of-000004.safetensors").size(), std::size_t{264});
  CHECK_EQ(std::filesystem::file_size(dir / "model-000000-of-000004.safetensors"), std::uintmax_t{384});
  CHECK(header_of(dir / "model-000000-of-000004.safetensors").find("__metadata__") == std::string::npos);
  CHECK_EQ(read_file(dir / "index"),
           R"({"block_index":{"b^ ":1,"item.embedding/part_0_2":1,"item.embedding/part_1_2":3,"item.id/part_0_2":0,)"
           R"("item.id/part_1_2":2,"step^ ":0,"user.embedding/part_0_2":1,"user.embedding/part_1_2":3,)"
           R"("user.id/part_0_2":0,"user.id/part_1_2":2,"w^ ":0},"file_index":{"model-000000-of-000004.safetensors":0,)"
           R"("model-000001-of-000004.safetensors":1,"model-000002-of-000004.safetensors":2,)"
           R"("model-000003-of-000004.safetensors":3}})");
  const Value keys = json_decode(read_file(dir / "tensorkey.json"));
  CHECK_EQ(keys.get_if<Value::Map>()->size(), std::size_t{8});
  CHECK(*keys.find("user.id/part_1_2") == Value("user@id^32768@65536@65536"));
  CHECK(*keys.find("item.embedding/part_0_2") == Value("item@embedding^00000@32768@65536"));
}

TEST(recis_description) {
  const TempDir dir;
  save_all(dir.path(), 2, 2, recis(), worked_example);
  const std::string text = read_file(dir / "torch_rank_weights_embs_table_multi_shard.json");
  CHECK(text.starts_with("{\n    \"b^ \": {\n        \"dense\": true,\n        \"dimension\": 0,\n"));
  const Value description = json_decode(text);
  CHECK_EQ(description.get_if<Value::Map>()->size(), std::size_t{11});
  CHECK(*description.find("user.embedding/part_1_2") == Value(Value::Map{{"dense", false},
                                                                         {"dimension", 4},
                                                                         {"dtype", "float32"},
                                                                         {"hashmap_key", "user.id/part_1_2"},
                                                                         {"hashmap_key_dtype", "int64"},
                                                                         {"hashmap_value", "user.embedding/part_1_2"},
                                                                         {"is_hashmap", true},
                                                                         {"name", "user.embedding/part_1_2"},
                                                                         {"shape", Value::List{5, 4}}}));
  CHECK(*description.find("item.id/part_0_2") ==
        Value(Value::Map{
            {"data_offsets", Value::List{40, 80}}, {"dense", false}, {"dtype", "I64"}, {"shape", Value::List{5}}}));
}

TEST(shards_may_save_one_after_the_other_with_an_attempt_and_a_run) {
  const TempDir dir;
  for (const std::int64_t shard : {1, 0}) {
    Saver saver(shard, 2, 2, dir.path());
    SaveOptions options = recis("a1");
    options.run = "r";
    saver.configure(options);
    auto [tables, tensors] = worked_example(shard);
    saver.save(saver.make_write_blocks(tables, std::move(tensors)));
  }
  CHECK_EQ(names_in(dir.path()).size(), std::size_t{7});
}

TEST(fewer_blocks_than_files_and_shards_without_any) {
  for (const CheckpointLayout layout : {CheckpointLayout::kPlain, CheckpointLayout::kRecis}) {
    const TempDir dir;
    SaveOptions options;
    options.layout = layout;
    save_all(dir.path(), 3, 8, options, [](std::int64_t) {
      return std::pair(Tables(),
                       std::vector<NewTensor>{dense("a", DType::kU8, {1}, "x"), dense("b", DType::kU8, {0}, "")});
    });
    const CheckpointReader reader(dir.path());
    CHECK_EQ(reader.tensor_names(), (std::vector<std::string>{"a", "b"}));
    CHECK_EQ(read(reader, "a"), "x");
    for (const std::string& name : names_in(dir.path())) CHECK(std::filesystem::file_size(dir / name) > 0);
  }
}

TEST(plain_files_are_balanced_and_aligned) {
  const TempDir dir;
  std::vector<NewTensor> tensors;
  for (int i = 0; i < 9; ++i) {
    tensors.push_back(dense("f" + std::to_string(i), DType::kF32, {300'000}, test_files::pattern(1'200'000, 1)));
    tensors.push_back(dense("u" + std::to_string(i), DType::kU8, {3}, "abc"));
  }
  Saver saver(0, 1, 4, dir.path());
  saver.save(saver.make_write_blocks({}, tensors));
  std::vector<std::uintmax_t> sizes;
  for (const std::string& name : names_in(dir.path())) {
    if (!name.ends_with(".safetensors")) continue;
    sizes.push_back(std::filesystem::file_size(dir / name));
    const Reader reader = Reader::open(dir / name);
    CHECK_EQ(reader.table().metadata().find("format"), std::optional<std::string_view>("pt"));
    for (std::size_t i = 0; i < reader.table().size(); ++i) {
      CHECK_EQ(reader.table().begin(i) % (bits_of(reader.table().dtype(i)) / 8), std::uint64_t{0});
    }
  }
  CHECK_EQ(sizes.size(), std::size_t{4});
  CHECK(*std::max_element(sizes.begin(), sizes.end()) - *std::min_element(sizes.begin(), sizes.end()) < 1'300'000);
  CHECK_EQ(Reader::open(dir / "model.safetensors.index.json").verify_all(), std::size_t{18});
}

TEST(plain_tables_are_cut_into_blocks_that_the_index_names) {
  const TempDir dir;
  const auto user = table("user", 4, 0, 1, 8);
  std::vector<std::int64_t> ids;
  for (std::int64_t id = 0; id < 4000; ++id) ids.push_back(id * 7919 - 1'000'000);
  fill(*user, ids, 4);
  Saver saver(0, 1, 2, dir.path());
  SaveOptions options;
  options.max_block_bytes = 1;
  saver.configure(options);
  saver.save(saver.make_write_blocks(Tables{user}, {}));
  const CheckpointReader reader(dir.path());
  CHECK_EQ(reader.tensor_names(), (std::vector<std::string>{"user@embedding", "user@id"}));
  const auto blocks = reader.blocks("user@id");
  CHECK_EQ(blocks.size(), std::size_t{8});
  std::uint64_t rows = 0;
  for (const auto& block : blocks) rows += block.rows;
  CHECK_EQ(rows, std::uint64_t{4000});
  CHECK_EQ(reader.verify(), std::size_t{16});
  const Reader files = Reader::open(dir / "model.safetensors.index.json");
  CHECK(files.table().find("user.embedding/0-8192-65536").has_value());
  // Every id lies in the buckets of its block.
  std::string bytes = read(reader, "user@id");
  std::size_t at = 0;
  for (const auto& block : blocks) {
    for (std::uint64_t i = 0; i < block.rows; ++i, at += 8) {
      std::int64_t id;
      std::memcpy(&id, bytes.data() + at, 8);
      CHECK(block.buckets.contains(id));
    }
  }
}

TEST(blocks_say_what_they_are_and_may_be_saved_twice) {
  const TempDir dir;
  auto [tables, tensors] = worked_example(0);
  Saver saver(0, 1, 2, dir / "a");
  saver.configure(recis());
  const std::vector<WriteBlock> blocks = saver.make_write_blocks(tables, std::move(tensors));
  CHECK_EQ(blocks.size(), std::size_t{7});
  CHECK_EQ(blocks[1].tensor_name(), "user@embedding");
  CHECK_EQ(blocks[1].slice_info(), "00000@32768@65536");
  CHECK_EQ(blocks[1].nbytes(), std::uint64_t{80});
  CHECK_EQ(blocks[4].slice_info(), " ");
  CHECK_EQ(to_string(blocks[4].kind()), "dense");
  saver.save(blocks);
  Saver second(0, 1, 2, dir / "b");
  second.configure(recis());
  second.save(blocks);
  CHECK_EQ(read_file(dir / "a/index"), read_file(dir / "b/index"));
  // Blocks are a snapshot: what happens to the table later is not in them.
  fill(*tables[0], {9, 10, 11}, 4);
  Saver third(0, 1, 2, dir / "c");
  third.save(blocks);
  CHECK_EQ(CheckpointReader(dir / "c").info("user@id").shape, Shape{5});
  CHECK_EQ(Saver(1, 2, 2, dir / "d").make_write_blocks({}, {dense("w", DType::kU8, {1}, "x")}).size(), std::size_t{0});
}

TEST(recis_cuts_when_asked_to) {
  const TempDir dir;
  const auto user = table("user", 2, 1, 2, 4);
  fill(*user, {32768, 40000, 50000, 60000, 65535}, 2);
  SaveOptions options = recis("x");
  options.run = "r";
  options.max_block_bytes = 8;
  Saver saver(1, 2, 3, dir.path());
  saver.configure(options);
  saver.save(saver.make_write_blocks(Tables{user}, {}));
  Saver first(0, 2, 3, dir.path());
  first.configure(options);
  first.save({});
  const CheckpointReader reader(dir.path());
  CHECK_EQ(reader.blocks("user@id").size(), std::size_t{3});  // a stripe without rows goes with its neighbour
  CHECK_EQ(reader.info("user@embedding").shape, (Shape{5, 2}));
}

TEST(names_that_cannot_live_together_are_refused_before_anything_is_written) {
  const TempDir dir;
  Saver saver(0, 1, 2, dir / "never");
  const auto user = table("user", 2, 0, 1);
  const Error same =
      CHECK_THROWS(Error, saver.save(saver.make_write_blocks(Tables{user}, {dense("user@id", DType::kU8, {1}, "x")})));
  CHECK(same.code() == ErrorCode::kInvalidArgument);
  CHECK(std::string(same.what()).find("user@id") != std::string::npos);
  CHECK_THROWS(Error, saver.save(saver.make_write_blocks(Tables{user, table("user", 2, 0, 1)}, {})));
  SaveOptions options = recis();
  saver.configure(options);
  CHECK_THROWS(Error, saver.save(saver.make_write_blocks(Tables{table("a.b", 2, 0, 1), table("a@b", 2, 0, 1)}, {})));
  CHECK(!std::filesystem::exists(dir / "never"));
}

TEST(recis_has_what_recis_reads) {
  const TempDir dir;
  Saver saver(0, 1, 2, dir / "never");
  saver.configure(recis());
  const auto refusal = [&](const Tables& tables, std::vector<NewTensor> tensors) {
    return CHECK_THROWS(Error, saver.save(saver.make_write_blocks(tables, std::move(tensors))));
  };
  for (const DType dtype : {DType::kU16, DType::kU32, DType::kU64, DType::kF8_E4M3, DType::kF8_E5M2, DType::kC64}) {
    const Error dense_error = refusal({}, {dense("w", dtype, {0}, "")});
    CHECK_EQ(dense_error.tensor(), "w");
    CHECK(std::string(dense_error.what()).find("RecIS cannot read elements of") != std::string::npos);
    const auto user = table("user", 2, 0, 1);
    user->add_slot("moment", {2}, dtype);
    CHECK_EQ(refusal({user}, {}).tensor(), "user@moment");
  }
  CHECK_EQ(refusal({}, {dense("a^b", DType::kU8, {1}, "x")}).tensor(), "a^b");
  CHECK_EQ(refusal({table("a^b", 2, 0, 1)}, {}).tensor(), "a^b@id");
  const auto slot = table("user", 2, 0, 1);
  slot->add_slot("m^v", {2}, DType::kF32);
  CHECK_EQ(refusal({slot}, {}).tensor(), "user@m^v");
  CHECK(!std::filesystem::exists(dir / "never"));
}

TEST(recis_has_rows_of_one_number_as_recis_has_them) {
  const TempDir dir;
  const auto user = table("user", 2, 0, 1);
  fill(*user, {1, 2, 3}, 2);
  user->touch(std::vector<std::int64_t>{1, 2}, 7);
  Saver saver(0, 1, 1, dir.path());
  saver.configure(recis());
  saver.save(saver.make_write_blocks(Tables{user}, {}));
  CHECK_EQ(entries(dir / "model-000000-of-000001.safetensors"),
           "user.id/part_0_1 I64 [3] 0-24; user.embedding/part_0_1 F32 [3,2] 24-48; "
           "user.version/part_0_1 I64 [3,1] 48-72; user.freq/part_0_1 I64 [3,1] 72-96; ");
  const auto back = table("user", 2, 0, 1);
  back->touch({}, 0);
  Loader loader(dir.path(), 1, {back}, {});
  loader.load(loader.default_load_info());
  CHECK(table_values::read_slot<std::int64_t>(*back, 1, {1, 2, 3}) == (std::vector<std::int64_t>{7, 7, 0}));
  CHECK_EQ(back->evict_older(1), std::uint64_t{1});
}

TEST(parts_that_do_not_fit_together_do_not_replace_a_checkpoint) {
  using Part = std::pair<Tables, std::vector<NewTensor>>;
  const auto table_of = [](BucketRange buckets, DType dtype = DType::kF32, std::size_t rows = 3) {
    TableOptions options;
    options.name = "user";
    options.shape = {2};
    options.dtype = dtype;
    options.buckets = buckets;
    auto made = std::make_shared<HashTable>(options);
    std::vector<std::int64_t> ids(rows);
    for (std::size_t i = 0; i < rows; ++i) ids[i] = static_cast<std::int64_t>(buckets.begin + i * buckets.size);
    std::vector<std::int64_t> numbers(rows);
    made->lookup(ids, true, numbers, {});
    return made;
  };
  const auto touched = [&](BucketRange buckets) {
    auto made = table_of(buckets);
    made->touch(std::vector<std::int64_t>{static_cast<std::int64_t>(buckets.begin)}, 1);
    return made;
  };
  const BucketRange low{0, 32768, 65536}, high{32768, 65536, 65536};
  struct Case {
    const char* reason;
    Part first;
    Part second;
  };
  const std::vector<Case> cases = {
      {"its blocks 00000@65536@65536 and 00000@65536@65536 overlap (shards 0 and 1)",
       {{table_of({})}, {}},
       {{table_of({})}, {}}},
      {"its blocks 00000@65536@65536 and 32768@65536@65536 overlap", {{table_of({})}, {}}, {{table_of(high)}, {}}},
      {"its blocks 00000@32768@65536 and 30000@65536@65536 overlap",
       {{table_of(low)}, {}},
       {{table_of({30000, 65536, 65536})}, {}}},
      {"different types or row shapes", {{table_of(low)}, {}}, {{table_of(high, DType::kBF16)}, {}}},
      {"from 65536 and 100 buckets", {{table_of(low)}, {}}, {{table_of({50, 100, 100})}, {}}},
      {"has a block 32768@65536@65536 with 3 rows that 'user@freq' has not",
       {{touched(low)}, {}},
       {{table_of(high)}, {}}},
      {"a table and a tensor have this name", {{}, {dense("user", DType::kU8, {1}, "x")}}, {{table_of(high)}, {}}},
      {"a table and a tensor have this name", {{}, {dense("user@id", DType::kU8, {1}, "x")}}, {{table_of(high)}, {}}},
  };
  for (const CheckpointLayout layout : {CheckpointLayout::kPlain, CheckpointLayout::kRecis}) {
    const TempDir dir;
    SaveOptions options;
    options.layout = layout;
    options.overwrite = true;
    save_all(dir / "ckpt", 1, 2, options, [&](std::int64_t) { return Part{{table_of({})}, {}}; });
    for (const Case& c : cases) {
      options.attempt = std::to_string(&c - cases.data());  // without one, no save is possible after a failed one
      const std::runtime_error error = CHECK_THROWS(
          std::runtime_error,
          save_all(dir / "ckpt", 2, 2, options, [&](std::int64_t shard) { return shard == 0 ? c.first : c.second; }));
      CHECK(std::string(error.what()).find(c.reason) != std::string::npos);
      CHECK(std::string(error.what()).find("shards ") != std::string::npos);
      const CheckpointReader reader(dir / "ckpt");
      reader.verify();
      CHECK_EQ(reader.blocks("user@id").size(), std::size_t{1});
    }
  }
}

TEST(arguments_are_checked) {
  CHECK_THROWS(Error, Saver(2, 2, 1, "x"));
  CHECK_THROWS(Error, Saver(-1, 2, 1, "x"));
  CHECK_THROWS(Error, Saver(0, 1, 0, "x"));
  const std::string cut("a\0b", 3);
  CHECK(CHECK_THROWS(Error, Saver(0, 1, 1, cut)).code() == ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, Loader(cut, 1, {}, {})).code() == ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, CheckpointReader(std::filesystem::path(cut))).code() == ErrorCode::kInvalidArgument);
  CHECK_THROWS(Error, Saver(0, 1, 1, "x").make_write_blocks(Tables{nullptr}, {}));
  CHECK_THROWS(Error, save_options_from_json(R"({"layouts":"plain"})"));
  CHECK_THROWS(Error, save_options_from_json(R"({"layout":"flat"})"));
  CHECK_THROWS(Error, save_options_from_json(R"({"attempt":"a/b"})"));
  const SaveOptions options = save_options_from_json(
      R"({"layout":"recis","durable":false,"checksums":false,"max_block_bytes":7,"overwrite":true,"attempt":"s.1","run":"r 2","timeout":1.5})");
  CHECK(options.layout == CheckpointLayout::kRecis && !options.durable && !options.checksums && options.overwrite);
  CHECK_EQ(options.max_block_bytes, std::uint64_t{7});
  CHECK_EQ(options.attempt, "s.1");
  CHECK_EQ(options.run, "r 2");
  CHECK_EQ(options.timeout.count(), 1500);
  const SaveOptions changed = save_options_from_json(R"({"durable":true,"attempt":""})", options);
  CHECK(changed.layout == CheckpointLayout::kRecis && changed.durable && !changed.checksums);
  CHECK_EQ(changed.attempt, "");
  CHECK_EQ(changed.run, "r 2");
}

RUN_TESTS()
