// Directories as Readers: columns of tables are tensors like all others.

#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "saver_files.h"
#include "weightstore/convert.h"
#include "weightstore/error.h"
#include "weightstore/loader.h"
#include "weightstore/rename.h"
#include "weightstore/writer.h"

using namespace weightstore;
using namespace saver_files;
using test_files::TempDir;

namespace {

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::uint64_t kDim = 2;
const std::string kDense = test_files::pattern(5000);

std::vector<std::int64_t> many_ids() {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 300; ++i) ids.push_back(i * 1021);
  return ids;
}

// Two shards, a table in many blocks, and a dense tensor.
void save(const std::filesystem::path& path, CheckpointLayout layout) {
  SaveOptions options;
  options.layout = layout;
  options.durable = false;
  options.max_block_bytes = 64;
  save_all(path, 2, 1, options, [&](std::int64_t shard) {
    Tables tables = {table("user", kDim, static_cast<std::uint64_t>(shard), 2)};
    fill(*tables[0], many_ids(), kDim);
    return std::pair(tables, std::vector<NewTensor>{dense("w", DType::kU8, {kDense.size()}, kDense)});
  });
}

std::string read_whole(const Reader& reader, std::string_view name) {
  const std::size_t tensor = reader.table().at(name);
  std::string bytes(reader.table().nbytes(tensor), '\0');
  reader.read(tensor, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

bool says(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

// Changes one byte of a tensor in the file that holds it.
void damage(const Reader& files, std::size_t tensor) {
  const TensorTable& table = files.table();
  const std::string path = table.sources()[table.source_of(tensor)]->name();
  std::string bytes = test_files::read_file(path);
  bytes[table.begin(tensor)] = static_cast<char>(bytes[table.begin(tensor)] ^ 1);
  test_files::write_file(path, bytes);
}

}  // namespace

TEST(a_checkpoint_reads_as_its_blocks_put_together) {
  for (const CheckpointLayout layout : {CheckpointLayout::kPlain, CheckpointLayout::kRecis}) {
    const TempDir dir;
    save(dir.path(), layout);
    for (const bool map : {true, false}) {
      ReadOptions options;
      options.map = map;
      const Reader reader = open_model(dir.path(), options);
      const TensorTable& table = reader.table();
      CHECK_EQ(table.size(), 3u);
      CHECK_EQ(reader.file_name(), dir.path().native());
      const std::size_t embedding = table.at("user@embedding");
      CHECK_EQ(table.shape(embedding), (Shape{300, kDim}));
      CHECK(table.shape(table.at("w")) == Shape{kDense.size()} && read_whole(reader, "w") == kDense);

      const std::string ids = read_whole(reader, "user@id");
      const std::string rows = read_whole(reader, "user@embedding");
      Rows found;
      for (std::size_t i = 0; i < 300; ++i) {
        std::int64_t id = 0;
        std::vector<float> row(kDim);
        std::memcpy(&id, ids.data() + i * sizeof(id), sizeof(id));
        std::memcpy(row.data(), rows.data() + i * kDim * sizeof(float), kDim * sizeof(float));
        found.emplace(id, row);
      }
      for (const std::int64_t id : many_ids()) CHECK_EQ(found.at(id), row_of(id, kDim));

      // Slices and loads are the same bytes.
      std::string every_third(100 * kDim * sizeof(float), '\0');
      const SliceDim dims[] = {{299, -3, 100}, {0, 1, kDim}};
      reader.read_slice(embedding, dims, std::as_writable_bytes(std::span(every_third)));
      for (std::size_t i = 0; i < 100; ++i) {
        CHECK(every_third.compare(i * 8, 8, rows, (299 - 3 * i) * 8, 8) == 0);
      }
      const auto loaded = reader.load(std::vector<std::size_t>{embedding});
      CHECK(std::ranges::equal(loaded[0].bytes, std::as_bytes(std::span(rows))));
      CHECK_EQ(reader.view(table.at("w")).has_value(), map);
    }
  }
}

TEST(a_column_of_one_block_has_views) {
  const TempDir dir;
  const auto user = table("user", kDim, 0, 1);
  fill(*user, {1, 2, 3}, kDim);
  Saver saver(0, 1, 1, dir.path());
  saver.save(saver.make_write_blocks(Tables{user}, {}));
  const Reader reader = open_model(dir.path());
  CHECK(reader.view(reader.table().at("user@id")).has_value());
  CHECK(reader.private_view(reader.table().at("user@embedding")).has_value());
}

TEST(checksums_are_those_of_the_blocks) {
  const TempDir dir;
  save(dir.path(), CheckpointLayout::kPlain);
  const Reader files = Reader::open(dir / kIndex);
  CHECK(files.table().size() > 50u);
  ReadOptions options;
  options.verify = Verify::kFull;
  {
    const Reader reader = open_model(dir.path(), options);
    CHECK_EQ(reader.verify_all(), files.verify_all());
    CHECK(reader.without_checksum().empty());
    CHECK(reader.has_checksum(reader.table().at("user@embedding")));
  }
  // A renamed Reader of one column compares only the blocks of that column.
  NameHooks hooks;
  hooks.keep = [](const TensorInfo& tensor) { return tensor.name == "user@id"; };
  hooks.rename = [](std::string_view) { return std::string("ids"); };
  std::size_t id_blocks = 0;
  std::size_t damaged = 0;
  for (std::size_t i = 0; i < files.table().size(); ++i) {
    if (files.table().name(i).starts_with("user.id/")) ++id_blocks;
    if (files.table().name(i).starts_with("user.embedding/")) damaged = i;
  }
  CHECK_EQ(open_model(dir.path()).renamed(hooks).verify_all(), id_blocks);

  damage(files, damaged);
  const std::string block(files.table().name(damaged));
  const std::string file = files.table().sources()[files.table().source_of(damaged)]->name();
  CHECK_EQ(open_model(dir.path()).renamed(hooks).verify_all(), id_blocks);
  const Error full = CHECK_THROWS(Error, open_model(dir.path(), options));
  options.verify = Verify::kLazy;
  const Reader lazy = open_model(dir.path(), options);
  const std::size_t embedding = lazy.table().at("user@embedding");
  const Error all = CHECK_THROWS(Error, lazy.verify_all());
  const Error whole = CHECK_THROWS(Error, read_whole(lazy, "user@embedding"));
  std::string row(8, '\0');
  const Error range = CHECK_THROWS(Error, lazy.read_range(embedding, 0, std::as_writable_bytes(std::span(row))));
  const Error copy = CHECK_THROWS(Error, convert_file(lazy, dir / "copy.safetensors", {}));
  for (const Error& error : {full, all, whole, range, copy}) {
    CHECK(error.code() == ErrorCode::kCorrupt);
    CHECK(says(error, block));
    CHECK_EQ(error.path(), file);
  }
  CHECK(read_whole(lazy, "w") == kDense);
  CHECK_EQ(read_whole(lazy, "user@id").size(), 300 * sizeof(std::int64_t));
}

TEST(a_checkpoint_without_checksums) {
  const TempDir dir;
  save(dir.path(), CheckpointLayout::kRecis);
  const Reader reader = open_model(dir.path());
  CHECK_EQ(reader.verify_all(), 0u);
  CHECK_EQ(reader.without_checksum().size(), 3u);
  ReadOptions options;
  options.verify = Verify::kFull;
  CHECK(CHECK_THROWS(Error, open_model(dir.path(), options)).code() == ErrorCode::kUnsupported);
}

TEST(sets_and_files_are_opened_as_they_are) {
  const TempDir dir;
  for (const char* name : {"one", "set"}) std::filesystem::create_directory(dir / name);
  Writer writer;
  writer.add("b", DType::kU8, {1}, test_files::as_bytes("b"));
  writer.set_metadata("k", "v");
  writer.write_file(dir / "one" / "net.bpk");
  CHECK(open_model(dir / "one").format() == Format::kBurnpack);
  CHECK_EQ(open_model(dir / "one").table().metadata().find("k").value(), "v");
  CHECK(open_model(dir / "one" / "net.bpk").format() == Format::kBurnpack);

  writer.write_file(dir / "set" / "model-00001-of-00002.safetensors");
  CHECK_THROWS(Error, open_model(dir / "set"));
  Writer other;
  other.add("a", DType::kU8, {1}, test_files::as_bytes("a"));
  other.set_metadata("k", "v");
  other.write_file(dir / "set" / "model-00002-of-00002.safetensors");
  const Reader shards = open_model(dir / "set");
  CHECK(read_whole(shards, "a") == "a" && read_whole(shards, "b") == "b");
  CHECK_EQ(shards.table().metadata().find("k").value(), "v");
  other.write_file(dir / "set" / "model-00001-of-00002.safetensors");
  CHECK(says(CHECK_THROWS(Error, open_model(dir / "set")), "twice"));
}

TEST(unknown_names_name_the_checkpoint) {
  const TempDir dir;
  save(dir.path(), CheckpointLayout::kPlain);
  const CheckpointReader reader(dir.path());
  const Error error = CHECK_THROWS(Error, reader.info("user@embeding"));
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK_EQ(error.path(), dir.path().native());
  CHECK(says(error, "did you mean 'user@embedding'?"));
}

TEST(the_limit_of_the_index_is_the_callers) {
  const TempDir dir;
  save(dir.path(), CheckpointLayout::kPlain);
  ReadOptions options;
  options.limits.safetensors_index_bytes = 100;
  CHECK(CHECK_THROWS(Error, open_model(dir.path(), options)).code() == ErrorCode::kLimit);
}

RUN_TESTS()
