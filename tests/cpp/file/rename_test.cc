#include "weightstore/rename.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "test_files.h"
#include "weightstore/checksum.h"
#include "weightstore/convert.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

using namespace weightstore;

namespace {

const std::vector<std::byte> kData = [] {
  std::vector<std::byte> data(64);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  return data;
}();

ConstBytes part(std::size_t begin, std::size_t size) { return ConstBytes(kData).subspan(begin, size); }

Writer model() {
  Writer writer;
  writer.add({"encoder.weight", DType::kF32, {2, 2}, resident_bytes(part(0, 16)), 11, nullptr});
  writer.add({"encoder.bias", DType::kF32, {2}, resident_bytes(part(16, 8)), 12, nullptr});
  writer.add({"decoder.weight", DType::kF16, {4}, resident_bytes(part(24, 8)), 13, nullptr});
  writer.set_metadata("made_by", "test");
  return writer;
}

NameHooks encoder_only() {
  NameHooks hooks;
  hooks.keep = [](const TensorInfo& tensor) { return tensor.name.starts_with("encoder."); };
  hooks.rename = [](std::string_view name) { return std::string(name.substr(8)); };
  return hooks;
}

std::set<std::string> names_of(const TensorTable& table) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < table.size(); ++i) names.emplace(table.name(i));
  return names;
}

}  // namespace

TEST(tensors_are_read_by_their_new_names) {
  Writer writer = model();
  writer.set_scalar("step", std::int64_t{7});
  const auto file = writer.write_bytes(Format::kBurnpack);
  const Reader reader = Reader::from_static(file).renamed(encoder_only());
  const TensorTable& table = reader.table();
  CHECK((names_of(table) == std::set<std::string>{"bias", "weight"}));
  CHECK(!table.find("encoder.bias"));
  CHECK(!table.find("decoder.weight"));

  const TensorInfo bias = table[table.at("bias")];
  CHECK(bias.dtype == DType::kF32);
  CHECK((bias.shape == Shape{2}));
  CHECK_EQ(*bias.param_id, 12u);
  CHECK(std::ranges::equal(reader.view(table.at("weight"))->bytes, part(0, 16)));
  std::vector<std::byte> copy(8);
  reader.read(table.at("bias"), copy);
  CHECK(std::ranges::equal(copy, part(16, 8)));

  CHECK(reader.format() == Format::kBurnpack);
  CHECK(table.metadata().find("made_by") == "test");
  CHECK_EQ(std::get<std::int64_t>(*table.scalars().find("step")), 7);
}

TEST(each_hook_may_be_missing) {
  const auto file = model().write_bytes(Format::kSafetensors);
  const Reader reader = Reader::from_static(file);
  CHECK((names_of(reader.renamed({}).table()) == names_of(reader.table())));
  NameHooks only_rename;
  only_rename.rename = [](std::string_view name) { return "model." + std::string(name); };
  CHECK((names_of(reader.renamed(only_rename).table()) ==
         std::set<std::string>{"model.encoder.weight", "model.encoder.bias", "model.decoder.weight"}));
  NameHooks only_keep;
  only_keep.keep = [](const TensorInfo& tensor) { return tensor.dtype == DType::kF16; };
  CHECK((names_of(reader.renamed(only_keep).table()) == std::set<std::string>{"decoder.weight"}));
  NameHooks nothing;
  nothing.keep = [](const TensorInfo&) { return false; };
  CHECK_EQ(reader.renamed(nothing).table().size(), 0u);
}

TEST(hooks_are_called_once_in_the_order_of_the_data) {
  const auto file = model().write_bytes(Format::kSafetensors);
  const Reader reader = Reader::from_static(file);
  std::vector<std::string> kept;
  std::vector<std::string> renamed;
  NameHooks hooks;
  hooks.keep = [&](const TensorInfo& tensor) {
    kept.push_back(tensor.name);
    return tensor.name != reader.table().name(0);
  };
  hooks.rename = [&](std::string_view name) { return renamed.emplace_back(name); };
  reader.renamed(hooks);
  CHECK_EQ(kept.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) CHECK_EQ(kept[i], reader.table().name(i));
  CHECK((renamed == std::vector<std::string>(kept.begin() + 1, kept.end())));
}

TEST(two_names_that_become_one_are_refused) {
  const auto file = model().write_bytes(Format::kSafetensors);
  NameHooks hooks;
  hooks.rename = [](std::string_view name) { return std::string(name.substr(name.find('.') + 1)); };
  const Error error = CHECK_THROWS(Error, Reader::from_static(file).renamed(hooks));
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK_EQ(error.tensor(), "weight");
  CHECK(error.message().find("'encoder.weight'") != std::string::npos);
  CHECK(error.message().find("'decoder.weight'") != std::string::npos);
}

TEST(what_a_hook_throws_arrives) {
  const auto file = model().write_bytes(Format::kSafetensors);
  NameHooks hooks;
  hooks.rename = [](std::string_view) -> std::string { throw std::range_error("no name"); };
  CHECK_THROWS(std::range_error, Reader::from_static(file).renamed(hooks));
}

TEST(the_reader_it_came_from_may_go) {
  const test_files::TempDir directory;
  model().write_file(directory / "model.safetensors");
  const Reader renamed = Reader::open(directory / "model.safetensors").renamed(encoder_only()).renamed({});
  CHECK(std::ranges::equal(renamed.view(renamed.table().at("weight"))->bytes, part(0, 16)));
}

TEST(a_renamed_file_is_written) {
  const test_files::TempDir directory;
  model().write_file(directory / "model.bpk");
  convert_file(Reader::open(directory / "model.bpk").renamed(encoder_only()), directory / "encoder.safetensors");
  const Reader written = Reader::open(directory / "encoder.safetensors");
  CHECK((names_of(written.table()) == std::set<std::string>{"bias", "weight"}));
  CHECK(std::ranges::equal(written.view(written.table().at("bias"))->bytes, part(16, 8)));
  CHECK(written.table().metadata().find("made_by") == "test");
}

TEST(checksums_follow_their_tensors) {
  WriteOptions options;
  options.checksums = true;
  for (const Format format : {Format::kSafetensors, Format::kBurnpack}) {
    const auto file = model().write_bytes(format, options);
    const Reader renamed = Reader::from_static(file).renamed(encoder_only());
    CHECK_EQ(renamed.verify_all(), 2u);
    // Also where they are written: a full verification refuses tensors without one.
    const auto converted = plan_conversion(renamed, format).contents.write_bytes(format);
    ReadOptions full;
    full.verify = Verify::kFull;
    CHECK_EQ(Reader::from_static(converted, full).verify_all(), 2u);

    // Swapped names are swapped checksums, not wrong ones.
    NameHooks swap;
    swap.rename = [](std::string_view name) {
      return std::string(name.starts_with("encoder") ? "decoder" : "encoder") + std::string(name.substr(7));
    };
    CHECK_EQ(Reader::from_static(file, full).renamed(swap).verify_all(), 3u);
  }
}

TEST(damage_is_found_under_the_new_name) {
  WriteOptions options;
  options.checksums = true;
  auto file = model().write_bytes(Format::kBurnpack, options);
  ReadOptions lazy;
  lazy.verify = Verify::kLazy;
  {
    const Reader reader = Reader::from_static(file, lazy);
    const std::size_t bias = reader.table().at("encoder.bias");
    file[reader.table().begin(bias)] ^= std::byte{1};
  }
  const Reader renamed = Reader::from_static(file, lazy).renamed(encoder_only());
  renamed.view(renamed.table().at("weight"));
  const Error error = CHECK_THROWS(Error, renamed.view(renamed.table().at("bias")));
  CHECK(error.code() == ErrorCode::kCorrupt);
  CHECK_EQ(error.tensor(), "bias");
}

TEST(sets_of_shards_are_renamed_as_one) {
  const test_files::TempDir directory;
  WriteOptions options;
  options.checksums = true;
  CHECK(model().write_shards(directory / "model.safetensors.index.json", 16, options).size() > 1);
  ReadOptions full;
  full.verify = Verify::kFull;
  const Reader renamed = Reader::open(directory / "model.safetensors.index.json", full).renamed(encoder_only());
  CHECK((names_of(renamed.table()) == std::set<std::string>{"bias", "weight"}));
  CHECK_EQ(renamed.verify_all(), 2u);
  CHECK(std::ranges::equal(renamed.view(renamed.table().at("bias"))->bytes, part(16, 8)));
}

TEST(files_of_torch_save_are_renamed_and_verified) {
  const auto path = test_files::test_data() / "fixtures/pytorch/checkpoint.pt";
  if (!std::filesystem::exists(path)) {
    std::printf("skipped files_of_torch_save: WEIGHTSTORE_TESTDATA has no fixtures/pytorch/checkpoint.pt\n");
    return;
  }
  ReadOptions lazy;
  lazy.verify = Verify::kLazy;
  const Reader reader = Reader::open(path, lazy);
  NameHooks hooks;
  hooks.rename = [](std::string_view name) { return "renamed." + std::string(name); };
  const Reader renamed = reader.renamed(hooks);
  CHECK(reader.table().size() > 0);
  CHECK_EQ(renamed.table().size(), reader.table().size());
  for (std::size_t i = 0; i < reader.table().size(); ++i) {
    const std::size_t number = renamed.table().at("renamed." + std::string(reader.table().name(i)));
    std::vector<std::byte> expected(reader.table().nbytes(i));
    std::vector<std::byte> found(expected.size());
    reader.read(i, expected);
    renamed.read(number, found);
    CHECK(found == expected);
  }
  CHECK_EQ(renamed.verify_all(), reader.verify_all());

  std::size_t stored = 0;
  while (reader.table().source_of(stored) != 0 || reader.table().nbytes(stored) == 0) ++stored;
  std::string damaged = test_files::read_file(path);
  damaged[reader.table().begin(stored)] ^= 1;
  const Reader of_damaged = Reader::open(test_files::source_of(damaged), lazy).renamed(hooks);
  std::vector<std::byte> out(of_damaged.table().nbytes(stored));
  CHECK(CHECK_THROWS(Error, of_damaged.read(stored, out)).code() == ErrorCode::kCorrupt);
}

RUN_TESTS()
