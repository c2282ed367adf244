// The index of a set of shards, and the rules that hold between it and the files it names.

#include <sys/stat.h>

#include <string>
#include <vector>

#include "check.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/safetensors.h"
#include "weightstore/writer.h"

using namespace weightstore;
using test_files::as_bytes;
using test_files::TempDir;

namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

std::string map_to(const std::string& file) { return "{\"weight_map\":{\"a\":\"" + file + "\"}}"; }

bool corrupt(std::string_view json) {
  const Error error = CHECK_THROWS(Error, safetensors::parse_index(json));
  CHECK(error.format() == Format::kSafetensorsIndex);
  return error.code() == ErrorCode::kCorrupt;
}

// A file of U8 tensors of one byte each.
void write_shard(const std::filesystem::path& path, const std::vector<std::string>& names) {
  static const std::string kByte = "x";
  Writer writer;
  for (const std::string& name : names) writer.add(name, DType::kU8, {1}, as_bytes(kByte));
  writer.write_file(path, Format::kSafetensors);
}

Error open_refusal(const std::filesystem::path& path) { return CHECK_THROWS(Error, Reader::open(path)); }

}  // namespace

TEST(an_index_maps_tensors_to_files) {
  const auto index = safetensors::parse_index(
      R"({"metadata":{"total_size": 3, "x":[1]},"other":{},"weight_map":{"b":"model.safetensors-2.safetensors","a":"\u00e9.safetensors"}} )");
  CHECK_EQ(index.weight_map.size(), 2u);
  CHECK_EQ(index.weight_map.key(0), "a");
  CHECK_EQ(index.weight_map.value(0), "\u00e9.safetensors");
  CHECK_EQ(index.metadata_json, R"({"total_size": 3, "x":[1]})");
  CHECK_EQ(safetensors::parse_index(R"({"weight_map":{}})").metadata_json, "{}");
  CHECK_EQ(safetensors::parse_index(R"({"weight_map":{},"metadata":null})").metadata_json, "{}");
}

TEST(an_index_that_is_not_one_is_refused) {
  for (const char* json :
       {"", "[]", "{}", R"({"metadata":{}})", R"({"weight_map":null})", R"({"weight_map":[]})",
        R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":null}})", R"({"weight_map":{"a":["m.safetensors"]}})",
        R"({"weight_map":{},"weight_map":{}})", R"({"weight_map":{},"metadata":[]})",
        R"({"weight_map":{},"metadata":1})", R"({"weight_map":{},"metadata":{},"metadata":{}})",
        R"({"weight_map":{"a":"m.safetensors","a":"m.safetensors"}})",
        R"({"weight_map":{"a":"m.safetensors","\u0061":"n.safetensors"}})", R"({"weight_map":{}}x)",
        R"({"weight_map":{"a":"m.safetensors"})"}) {
    CHECK(corrupt(json));
  }
}

TEST(a_shard_name_is_one_plain_component) {
  for (const char* file : {"",
                           ".",
                           "..",
                           ".safetensors",
                           "../m.safetensors",
                           "a/m.safetensors",
                           "/m.safetensors",
                           "./m.safetensors",
                           "m.safetensors/",
                           "..\\\\m.safetensors",
                           "a\\\\m.safetensors",
                           "\\\\\\\\host\\\\m.safetensors",
                           "C:m.safetensors",
                           "C:\\\\m.safetensors",
                           "m.safetensors:x.safetensors",
                           "m\\u0000.safetensors",
                           "\\u002e\\u002e\\u002fm.safetensors",
                           ".bin",
                           "../m.bin",
                           "a/m.bin",
                           "m.bin.bak",
                           "m.pt",
                           "m.safetensors.bak",
                           "m.SAFETENSORS",
                           "m.safetensors ",
                           "m.index.json",
                           "m.safetensors\\u0000"}) {
    CHECK(corrupt(map_to(file)));
  }
  for (const char* file : {"m.safetensors", "..safetensors", "a..b.safetensors", "...safetensors", " .safetensors",
                           "model.safetensors-00003-of-00004.safetensors"}) {
    CHECK_EQ(safetensors::parse_index(map_to(file)).weight_map.value(0), file);
    CHECK(safetensors::parse_index(map_to(file)).shard_format == Format::kSafetensors);
  }
}

TEST(an_index_of_torch_files) {
  const safetensors::ShardIndex index = safetensors::parse_index(map_to("pytorch_model-00001-of-00002.bin"));
  CHECK(index.shard_format == Format::kPytorch);
  CHECK(corrupt(R"({"weight_map": {"a": "m.bin", "b": "m.safetensors"}})"));
  CHECK(corrupt(R"({"weight_map": {"a": "m.safetensors", "b": "m.bin"}})"));
}

TEST(an_index_is_written_as_the_hub_tools_write_it) {
  TextMap map;
  map.add("b", "model-00002-of-00002.safetensors");
  map.add("a\"", "model-00001-of-00002.safetensors");
  TextMap metadata;
  metadata.add("total_size", "wrong");
  metadata.add("format", "pt");
  CHECK_EQ(safetensors::write_index(map, 12, &metadata),
           "{\n  \"metadata\": {\n    \"format\": \"pt\",\n    \"total_size\": 12\n  },\n  \"weight_map\": {\n"
           "    \"a\\\"\": \"model-00001-of-00002.safetensors\",\n    \"b\": \"model-00002-of-00002.safetensors\"\n  "
           "}\n}\n");
  CHECK_EQ(safetensors::write_index({}, 0, nullptr),
           "{\n  \"metadata\": {\n    \"total_size\": 0\n  },\n  \"weight_map\": {}\n}\n");
}

TEST(every_tensor_is_in_exactly_the_shard_it_is_mapped_to) {
  const TempDir dir;
  write_shard(dir / "1.safetensors", {"a", "b"});
  write_shard(dir / "2.safetensors", {"c"});
  const auto with = [&](const char* map) {
    test_files::write_file(dir / kIndex, std::string("{\"weight_map\":{") + map + "}}");
    return dir / kIndex;
  };
  const Reader reader = Reader::open(with(R"("a":"1.safetensors","b":"1.safetensors","c":"2.safetensors")"));
  CHECK(reader.format() == Format::kSafetensorsIndex);
  CHECK_EQ(reader.table().size(), 3u);
  CHECK_EQ(reader.table().sources().size(), 2u);

  const Error missing =
      open_refusal(with(R"("a":"1.safetensors","b":"1.safetensors","c":"2.safetensors","d":"2.safetensors")"));
  CHECK(missing.code() == ErrorCode::kCorrupt);
  CHECK_EQ(missing.tensor(), "d");
  CHECK_EQ(missing.path(), (dir / kIndex).string());
  const Error elsewhere = open_refusal(with(R"("a":"1.safetensors","b":"2.safetensors","c":"2.safetensors")"));
  CHECK_EQ(elsewhere.tensor(), "b");
  const Error unnamed = open_refusal(with(R"("a":"1.safetensors","c":"2.safetensors")"));
  CHECK(unnamed.code() == ErrorCode::kCorrupt);
  CHECK_EQ(unnamed.tensor(), "b");
  const Error last = open_refusal(with(R"("a":"1.safetensors","b":"1.safetensors","no":"2.safetensors")"));
  CHECK_EQ(last.tensor(), "no");
  const Error absent = open_refusal(with(R"("a":"1.safetensors","b":"1.safetensors","c":"3.safetensors")"));
  CHECK(absent.code() == ErrorCode::kIo);
  CHECK_EQ(absent.os_errno(), ENOENT);
  CHECK_EQ(absent.path(), (dir / "3.safetensors").string());

  write_shard(dir / "2.safetensors", {"b", "c"});
  const Error twice = open_refusal(with(R"("a":"1.safetensors","b":"1.safetensors","c":"2.safetensors")"));
  CHECK(twice.code() == ErrorCode::kCorrupt);
  CHECK_EQ(twice.tensor(), "b");
}

TEST(a_shard_may_be_a_symlink_to_a_regular_file_and_nothing_else) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "blobs");
  std::filesystem::create_directories(dir / "snapshot");
  const auto index = dir / "snapshot" / kIndex;
  const auto shard = dir / "snapshot" / "m.safetensors";
  test_files::write_file(index, map_to("m.safetensors"));
  write_shard(dir / "blobs" / "0123", {"a"});
  std::filesystem::create_symlink("../blobs/0123", shard);
  CHECK_EQ(Reader::open(index).table().name(0), "a");

  std::filesystem::remove(shard);
  std::filesystem::create_symlink("m.safetensors", shard);
  CHECK_EQ(open_refusal(index).os_errno(), ELOOP);
  std::filesystem::remove(shard);
  CHECK_EQ(::mkfifo(shard.c_str(), 0600), 0);
  CHECK(open_refusal(index).code() == ErrorCode::kIo);
  std::filesystem::remove(shard);
  std::filesystem::create_symlink("/dev/zero", shard);
  CHECK(open_refusal(index).code() == ErrorCode::kIo);
  std::filesystem::remove(shard);
  std::filesystem::create_directory(shard);
  CHECK_EQ(open_refusal(index).os_errno(), EISDIR);
  CHECK_EQ(open_refusal(index).path(), shard.string());
}

TEST(a_shard_is_a_safetensors_file_by_content) {
  const TempDir dir;
  test_files::write_file(dir / kIndex, map_to("m.safetensors"));
  test_files::write_file(dir / "m.safetensors", "not weights");
  CHECK_EQ(open_refusal(dir / kIndex).path(), (dir / "m.safetensors").string());
  // An index that names itself by another name leads nowhere.
  test_files::write_file(dir / "m.safetensors", map_to("m.safetensors"));
  CHECK(open_refusal(dir / kIndex).code() == ErrorCode::kLimit);
}

TEST(an_index_has_at_most_ten_mebibytes) {
  const TempDir dir;
  write_shard(dir / "m.safetensors", {"a"});
  std::string json = map_to("m.safetensors");
  json.resize(10u << 20, ' ');
  test_files::write_file(dir / kIndex, json);
  CHECK_EQ(Reader::open(dir / kIndex).table().size(), 1u);
  test_files::write_file(dir / kIndex, json + " ");
  CHECK(open_refusal(dir / kIndex).code() == ErrorCode::kLimit);
}

TEST(an_index_in_memory_has_no_files_beside_it) {
  CHECK(CHECK_THROWS(Error, Reader::open(test_files::source_of(map_to("m.safetensors")))).code() ==
        ErrorCode::kUnsupported);
}

TEST(metadata_of_the_index_is_text) {
  const TempDir dir;
  test_files::write_file(dir / kIndex, R"({"metadata":{"total_size":12,"s":"v\n","l":[1, 2]},"weight_map":{}})");
  const Reader reader = Reader::open(dir / kIndex);
  CHECK(reader.table().metadata().find("total_size") == "12");
  CHECK(reader.table().metadata().find("s") == "v\n");
  CHECK(reader.table().metadata().find("l") == "[1, 2]");
  test_files::write_file(dir / kIndex, R"({"metadata":{"k":1,"k":2},"weight_map":{}})");
  CHECK(open_refusal(dir / kIndex).code() == ErrorCode::kCorrupt);
}

RUN_TESTS()
