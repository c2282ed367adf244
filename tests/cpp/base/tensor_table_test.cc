#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/tensor.h"
#include "weightstore/typed_metadata.h"

using namespace weightstore;

namespace {

void add(TensorTable& table, std::string_view name, std::uint64_t begin, std::uint64_t end, const Shape& shape = {}) {
  TensorTable::Row tensor;
  tensor.name = name;
  tensor.shape = shape;
  tensor.begin = begin;
  tensor.end = end;
  table.add(tensor);
}

}  // namespace

TEST(contiguous_bytes_multiplies_left_to_right) {
  constexpr std::uint64_t kMax = UINT64_MAX;
  const auto size = [](DType dtype, const Shape& shape) { return contiguous_bytes(dtype, shape); };
  CHECK(size(DType::kF32, {}) == 4);
  CHECK(size(DType::kF32, {2, 3}) == 24);
  CHECK(size(DType::kC64, {0}) == 0);
  CHECK(size(DType::kU8, {0, kMax, 2}) == 0);
  CHECK(size(DType::kU8, {kMax, 2, 0}) == std::nullopt);
  // Bits are counted in 64 bits too.
  CHECK(size(DType::kU8, {std::uint64_t{1} << 61}) == std::nullopt);
  CHECK(size(DType::kU8, {(std::uint64_t{1} << 61) - 1}) == (std::uint64_t{1} << 61) - 1);
  CHECK(size(DType::kF4, {2, 3}) == 3);
  CHECK(size(DType::kF4, {3}) == std::nullopt);
  CHECK(size(DType::kF4, {}) == std::nullopt);
  CHECK(size(DType::kF6_E3M2, {4}) == 3);
  CHECK(size(DType::kF6_E2M3, {2}) == std::nullopt);
  CHECK(size(DType::kQFloat, {4}) == std::nullopt);
}

TEST(tensors_are_ordered_by_their_data_and_keep_the_order_of_equals) {
  TensorTable table;
  add(table, "late", 8, 12);
  add(table, "empty b", 4, 4);
  add(table, "first", 0, 4);
  add(table, "middle", 4, 8);
  add(table, "empty a", 4, 4);
  table.finish();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < table.size(); ++i) names.emplace_back(table.name(i));
  CHECK((names == std::vector<std::string>{"first", "empty b", "empty a", "middle", "late"}));
}

TEST(what_goes_in_comes_out) {
  TensorTable table;
  const Shape shape = {0, 1, 127, 128, 16'383, 16'384, UINT64_MAX};
  TensorTable::Row tensor;
  tensor.name = "t";
  tensor.dtype = DType::kBF16;
  tensor.shape = shape;
  tensor.begin = 3;
  tensor.end = UINT64_MAX;
  tensor.param_id = 0;
  table.add(tensor);
  table.finish();
  const TensorInfo info = table[0];
  CHECK_EQ(info.name, "t");
  CHECK(info.dtype == DType::kBF16);
  CHECK(info.shape == shape && table.shape(0) == shape);
  CHECK_EQ(info.nbytes(), UINT64_MAX - 3);
  CHECK(info.param_id == 0u);
  CHECK(info.quant == nullptr);
}

TEST(lookup_by_any_name) {
  std::mt19937 random(3);
  std::vector<std::string> names = {"", std::string(1, '\0'), std::string(2, '\0'), "a", std::string("a\0", 2)};
  for (int i = 0; i < 5000; ++i) names.push_back("layer." + std::to_string(random()) + ".weight");
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::shuffle(names.begin(), names.end(), random);
  TensorTable table;
  for (std::size_t i = 0; i < names.size(); ++i) add(table, names[i], i, i + 1);
  table.finish();
  for (std::size_t i = 0; i < names.size(); ++i) {
    CHECK(table.find(names[i]) == i);
    CHECK_EQ(table.at(names[i]), i);
  }
  CHECK(!table.find("layer"));
  CHECK(!table.find(std::string(3, '\0')));
  std::sort(names.begin(), names.end());
  const auto by_name = table.by_name();
  for (std::size_t i = 0; i < names.size(); ++i) CHECK_EQ(table.name(by_name[i]), names[i]);
}

TEST(names_are_sorted_from_any_arrangement) {
  for (const std::size_t count : {0u, 1u, 2u, 3u, 5u, 8u, 33u}) {
    for (unsigned seed = 0; seed < 50; ++seed) {
      std::vector<std::string> names;
      for (std::size_t i = 0; i < count; ++i) names.push_back(std::to_string(100 + i));
      if (seed == 1) std::reverse(names.begin(), names.end());
      if (seed > 1) std::shuffle(names.begin(), names.end(), std::mt19937(seed));
      TensorTable table;
      for (std::size_t i = 0; i < count; ++i) add(table, names[i], i, i);
      table.finish();
      const auto by_name = table.by_name();
      for (std::size_t i = 0; i < count; ++i) CHECK_EQ(table.name(by_name[i]), std::to_string(100 + i));
    }
  }
}

TEST(names_that_differ_late_or_by_nothing_but_length_are_sorted) {
  // What all names share is skipped and four bytes behind it are compared first: neither may decide too early.
  std::vector<std::string> names = {"common.",
                                    std::string("common.\0", 8),
                                    std::string("common.\0\0", 9),
                                    "common.12345678",
                                    "common.12345678a",
                                    "common.12345678b",
                                    "common.1234567",
                                    "common.\xFF",
                                    "common.\x7F"};
  std::sort(names.begin(), names.end());
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::vector<std::string> shuffled = names;
    std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(seed));
    TensorTable table;
    for (std::size_t i = 0; i < names.size(); ++i) add(table, shuffled[i], i, i);
    table.finish();
    const auto by_name = table.by_name();
    for (std::size_t i = 0; i < names.size(); ++i) CHECK_EQ(table.name(by_name[i]), names[i]);
  }
}

TEST(names_of_few_letters_are_sorted_like_text) {
  // Many shared beginnings of every length, ends everywhere, and zero bytes.
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::string letters = round % 2 == 0 ? std::string("ab") : std::string("a\0", 2);
    std::set<std::string> names;
    const std::size_t wanted = 1 + random() % 300;
    while (names.size() < wanted) {
      std::string name;
      for (std::size_t length = random() % 24; name.size() < length;) name += letters[random() % 2];
      names.insert(round % 3 == 0 ? name : "shared.beginning." + name);
    }
    std::vector<std::string> shuffled(names.begin(), names.end());
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    TensorTable table;
    for (std::size_t i = 0; i < shuffled.size(); ++i) add(table, shuffled[i], i, i);
    table.finish();
    const auto by_name = table.by_name();
    std::size_t i = 0;
    for (const std::string& name : names) CHECK(table.name(by_name[i++]) == name);
  }
}

TEST(names_that_each_begin_the_next_are_sorted) {
  TensorTable table;
  for (std::size_t length = 2000; length-- > 0;) add(table, std::string(length, 'x'), 2000 - length, 2000 - length);
  table.finish();
  const auto by_name = table.by_name();
  for (std::size_t i = 0; i < 2000; ++i) CHECK_EQ(table.name(by_name[i]).size(), i);
}

TEST(kinds_that_are_alike_and_kinds_that_are_not) {
  std::mt19937 random(11);
  TensorTable table;
  std::vector<TensorInfo> expected;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    TensorInfo info;
    info.name = std::to_string(i);
    info.dtype = random() % 2 == 0 ? DType::kU8 : DType::kI8;
    info.source = static_cast<std::uint32_t>(random() % 3);
    info.begin = i;
    info.end = i + random() % 2;
    // Few shapes that come again, and many that do not.
    const bool often = random() % 2 == 0;
    for (std::size_t d = i % 100 == 0 ? 20 : random() % 4; d > 0; --d)
      info.shape.push_back(random() % (often ? 2 : 1'000'000));
    if (random() % 2 == 0) info.param_id = random();
    table.add({info.name, info.dtype, info.shape, info.source, info.begin, info.end, info.param_id, nullptr});
    expected.push_back(info);
  }
  table.finish();
  for (const TensorInfo& info : expected) {
    const std::size_t i = table.at(info.name);
    const TensorInfo found = table[i];
    CHECK(found.name == info.name && found.dtype == info.dtype && found.shape == info.shape);
    CHECK(found.source == info.source && found.begin == info.begin && found.end == info.end);
    CHECK(found.param_id == info.param_id);
    CHECK(table.dtype(i) == info.dtype && table.shape(i) == info.shape && table.source_of(i) == info.source);
    CHECK(table.begin(i) == info.begin && table.nbytes(i) == info.nbytes());
  }
}

TEST(names_of_every_length) {
  TensorTable table;
  table.expect_header(100);
  for (std::size_t length = 0; length < 300; ++length) {
    const std::string name(length, 'x');
    table.add({name,
               DType::kU8,
               {},
               0,
               length,
               length + 1,
               length % 2 == 0 ? std::optional<std::uint64_t>(length) : std::nullopt,
               nullptr});
  }
  const TensorTable moved = [&] {
    table.finish();
    return std::move(table);
  }();
  for (std::size_t length = 0; length < 300; ++length) {
    CHECK_EQ(moved.name(length), std::string(length, 'x'));
    CHECK(moved.find(std::string(length, 'x')) == length);
    CHECK_EQ(moved[length].param_id.has_value(), length % 2 == 0);
  }
}

// What a million tensors with names of 45 characters may take: 45 MB of names, and the rest.
TEST(a_tensor_takes_few_bytes_besides_its_name) {
  constexpr std::size_t kCount = 100'000;
  TensorTable table;
  const std::uint64_t shape[] = {16, 16};
  for (std::size_t i = 0; i < kCount; ++i) {
    table.add({std::to_string(1'000'000 + i), DType::kU8, shape, 0, 256 * i, 256 * i + 256, std::nullopt, nullptr});
  }
  table.finish();
  // Arrays that doubled may have twice the room: 16 bytes of a record, 8 of a name, and at most 16 of the lookup.
  CHECK(table.memory_bytes() <= kCount * (2 * (16 + 8) + 16) + 1000);
}

TEST(an_empty_table_finds_nothing) {
  TensorTable table;
  CHECK(!table.find("a"));
  table.finish();
  CHECK(!table.find("a"));
  CHECK(!table.find(""));
  CHECK_EQ(table.size(), 0u);
}

TEST(a_name_given_twice_is_refused) {
  TensorTable table;
  add(table, "x", 0, 1);
  add(table, "y", 1, 2);
  add(table, "x", 2, 3);
  const Error error = CHECK_THROWS(Error, table.finish());
  CHECK(error.code() == ErrorCode::kCorrupt);
  CHECK_EQ(error.tensor(), "x");
}

TEST(a_missing_name_is_told_its_nearest) {
  TensorTable table;
  add(table, "encoder.layer.0.weight", 0, 1);
  add(table, "encoder.layer.1.weight", 1, 2);
  add(table, "decoder.bias", 2, 3);
  table.finish();
  const Error near = CHECK_THROWS(Error, table.at("encoder.layer.1.wieght"));
  CHECK(near.code() == ErrorCode::kNotFound);
  CHECK_EQ(near.tensor(), "encoder.layer.1.wieght");
  CHECK(near.message().find("'encoder.layer.1.weight'") != std::string::npos);
  const Error far = CHECK_THROWS(Error, table.at("completely different"));
  CHECK(far.message().find("did you mean") == std::string::npos);
}

TEST(append_moves_sources_behind_ours) {
  TensorTable a;
  a.add_source(test_files::source_of("a"));
  add(a, "x", 0, 1, {1});
  a.finish();
  TensorTable b;
  b.add_source(test_files::source_of("bb"));
  add(b, "w", 0, 2, {2});
  b.finish();
  TensorTable both;
  both.append(a);
  both.append(b);
  both.finish();
  CHECK_EQ(both.size(), 2u);
  CHECK_EQ(both.sources().size(), 2u);
  CHECK_EQ(both.name(1), "w");
  CHECK_EQ(both.source_of(1), 1u);
  CHECK_EQ(both.sources()[1]->size(), 2u);
  CHECK(both.shape(1) == Shape{2});
}

TEST(text_map_keeps_order_until_sorted) {
  TextMap map;
  map.add("b", "1");
  map.add("a", "");
  map.add("", "3");
  CHECK_EQ(map.key(0), "b");
  CHECK(map.find("a") == "");
  CHECK(map.find("") == "3");
  CHECK(!map.find("c"));
  CHECK_EQ(map.duplicate(), map.size());
  map.sort();
  CHECK_EQ(map.key(0), "");
  CHECK_EQ(map.value(0), "3");
  CHECK_EQ(map.key(2), "b");
  map.add("b", "again");
  map.sort();
  CHECK_EQ(map.duplicate(), 3u);
}

TEST(text_map_sorts_by_bytes) {
  TextMap map;
  for (const char* key : {"\xC3\xA9", "z", "Z", "a\x01", "a"}) map.add(key, key);
  map.sort();
  for (std::size_t i = 1; i < map.size(); ++i) CHECK(map.key(i - 1) < map.key(i));
  CHECK_EQ(map.key(4), "\xC3\xA9");
}

TEST(scalar_map_finds_and_sorts) {
  ScalarMap map;
  map.add("step", std::uint64_t{7});
  map.add("done", true);
  map.add("loss", 0.5);
  map.add("delta", std::int64_t{-1});
  map.sort();
  CHECK_EQ(map.name(0), "delta");
  CHECK_EQ(map.name(3), "step");
  CHECK(*map.find("loss") == Scalar(0.5));
  CHECK(*map.find("done") == Scalar(true));
  CHECK(map.find("none") == nullptr);
  CHECK_EQ(map.duplicate(), map.size());
  map.add("done", false);
  map.sort();
  CHECK_EQ(map.duplicate(), 2u);
}

TEST(metadata_may_be_more_than_text) {
  TensorTable table;
  CHECK(table.typed_metadata() == nullptr);
  TypedMetadata metadata;
  metadata.set("layers", 32);
  table.set_typed_metadata(std::make_shared<const TypedMetadata>(std::move(metadata)));
  table.finish();
  const TensorTable copy = table;
  CHECK(copy.typed_metadata()->find("layers") == 0u);
  CHECK(!copy.has_metadata());
}

RUN_TESTS()
