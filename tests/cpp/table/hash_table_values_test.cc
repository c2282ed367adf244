// What new rows hold: types and initializers.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "check.h"
#include "table_values.h"
#include "weightstore/error.h"
#include "weightstore/hash_table.h"

using namespace weightstore;
using namespace table_values;

namespace {

TableOptions with(DType dtype, const Initializer& initializer, std::uint64_t dim = 4) {
  TableOptions result = options(dim);
  result.dtype = dtype;
  result.initializer = initializer;
  return result;
}

template <class T>
std::vector<T> new_rows(const TableOptions& made, const Ids& ids, std::size_t dim = 4) {
  HashTable table(made);
  std::vector<T> out(ids.size() * dim);
  table.lookup(ids, true, {}, std::as_writable_bytes(std::span(out)));
  return out;
}

}  // namespace

TEST(new_rows_depend_on_seed_and_id_alone) {
  const Initializer uniform{Initializer::Kind::kUniform, -1, 1, 42};
  const auto ab = new_rows<float>(with(DType::kF32, uniform), {1, 2});
  const auto ba = new_rows<float>(with(DType::kF32, uniform), {9, 2, 1});
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK_EQ(ab[i], ba[8 + i]);
    CHECK_EQ(ab[4 + i], ba[4 + i]);
    CHECK(ab[i] != ab[4 + i]);
  }
  const auto other = new_rows<float>(with(DType::kF32, {Initializer::Kind::kUniform, -1, 1, 43}), {1, 2});
  CHECK(other[0] != ab[0]);
}

// Computed by a program of a few lines in another language: they must never change.
TEST(the_generator_is_what_it_always_was) {
  const auto words = new_rows<double>(with(DType::kF64, {Initializer::Kind::kUniform, 0, 1, 42}, 2), {1, -5}, 2);
  CHECK_EQ(words[0], 0x11424d4688f2cep-53);
  CHECK_EQ(words[1], 0x050a204adfd142p-53);
  CHECK_EQ(words[2], 0x16e8ccd651e8a9p-53);
  CHECK_EQ(words[3], 0x161ed7cdc3fe6dp-53);
}

// Seeds and ids are small numbers more often than not, and often the same ones.
TEST(no_two_pairs_of_seed_and_id_start_equally) {
  Ids ids;
  for (std::int64_t id = -20; id < 100; ++id) ids.push_back(id);
  std::set<std::vector<double>> rows;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto values = new_rows<double>(with(DType::kF64, {Initializer::Kind::kUniform, 0, 1, seed}, 2), ids, 2);
    for (std::size_t i = 0; i < ids.size(); ++i) rows.insert({values[2 * i], values[2 * i + 1]});
  }
  CHECK_EQ(rows.size(), 100 * ids.size());
}

TEST(random_values_have_the_moments_asked_for) {
  Ids ids(20000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
  const auto moments = [&](const Initializer& initializer) {
    const auto values = new_rows<float>(with(DType::kF32, initializer, 5), ids, 5);
    double sum = 0;
    double squares = 0;
    double least = values[0];
    double most = values[0];
    for (const float x : values) {
      sum += x;
      squares += double{x} * x;
      least = std::min<double>(least, x);
      most = std::max<double>(most, x);
    }
    const double count = static_cast<double>(values.size());
    const double mean = sum / count;
    return std::array{mean, std::sqrt(squares / count - mean * mean), least, most};
  };
  const auto near = [](double a, double b) { return std::abs(a - b) < 0.02; };
  const auto uniform = moments({Initializer::Kind::kUniform, 1, 3, 7});
  CHECK(near(uniform[0], 2) && near(uniform[1], 2 / std::sqrt(12.0)) && uniform[2] >= 1 && uniform[3] <= 3);
  const auto normal = moments({Initializer::Kind::kNormal, 1, 2, 7});
  CHECK(near(normal[0], 1) && near(normal[1], 2) && normal[3] > 7);
  const auto truncated = moments({Initializer::Kind::kTruncatedNormal, 1, 2, 7});
  CHECK(near(truncated[0], 1) && near(truncated[1], 2 * 0.8796) && truncated[2] >= -3 && truncated[3] <= 5);
}

TEST(bfloat16_and_half_tables) {
  const Initializer constant{Initializer::Kind::kConstant, 1.5};
  CHECK_EQ(new_rows<std::uint16_t>(with(DType::kBF16, constant), {1})[3], 0x3FC0);
  CHECK_EQ(new_rows<std::uint16_t>(with(DType::kF16, constant), {1})[3], 0x3E00);
  HashTable table(with(DType::kBF16, {Initializer::Kind::kNormal, 0, 1, 3}));
  const std::vector<std::uint16_t> rows{1, 2, 3, 4, 5, 6, 7, 8};
  table.insert(Ids{10, 20}, bytes_of(rows));
  CHECK(read_slot<std::uint16_t>(table, 0, {20, 10}, 4) == (std::vector<std::uint16_t>{5, 6, 7, 8, 1, 2, 3, 4}));
  // The same numbers as F32, rounded.
  const auto narrow = new_rows<std::uint16_t>(with(DType::kBF16, {Initializer::Kind::kNormal, 0, 1, 3}), {77});
  const auto wide = new_rows<float>(with(DType::kF32, {Initializer::Kind::kNormal, 0, 1, 3}), {77});
  for (std::size_t i = 0; i < 4; ++i) {
    const float back = std::bit_cast<float>(std::uint32_t{narrow[i]} << 16);
    CHECK(std::abs(back - wide[i]) <= std::abs(wide[i]) / 256);
  }
}

// Narrow types round: to 1.0 what lies just below it, and below 1.001 what lies just above.
TEST(uniform_values_stay_within_their_bounds) {
  Ids ids(2000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
  const auto bounds_of = [&](double a, double b) {
    const auto bits = new_rows<std::uint16_t>(with(DType::kBF16, {Initializer::Kind::kUniform, a, b, 7}), ids);
    std::vector<float> values;
    for (const std::uint16_t value : bits) values.push_back(std::bit_cast<float>(std::uint32_t{value} << 16));
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return std::array{*least, *most};
  };
  CHECK_EQ(bounds_of(0, 1)[1], 1 - 0x1p-8f);
  CHECK_EQ(bounds_of(-1, 0)[0], -1.0f);
  CHECK(bounds_of(-1, 0)[1] < 0);
  CHECK_EQ(bounds_of(1.001, 1.02)[0], 1 + 0x1p-7f);
  CHECK_EQ(bounds_of(1.001, 1.02)[1], 1 + 0x1p-6f);
  CHECK(bounds_of(0.5, 0.5) == (std::array{0.5f, 0.5f}));
  CHECK(bounds_of(1.001, 1.002) == (std::array{1.0f, 1.0f}));  // nothing lies between
  const auto wide = new_rows<float>(with(DType::kF32, {Initializer::Kind::kUniform, 1, 1 + 0x1p-23}), ids);
  CHECK(std::all_of(wide.begin(), wide.end(), [](float x) { return x == 1; }));
}

TEST(integer_tables) {
  const auto filled = [](DType dtype, double value) { return with(dtype, {Initializer::Kind::kConstant, value}); };
  CHECK_EQ(new_rows<std::int8_t>(filled(DType::kI8, -128), {1})[3], -128);
  CHECK_EQ(new_rows<std::uint64_t>(filled(DType::kU64, 0x1p63), {1})[3], 1ull << 63);
  CHECK_EQ(new_rows<std::int64_t>(filled(DType::kI64, -0x1p63), {1})[3], std::numeric_limits<std::int64_t>::min());
  CHECK_EQ(new_rows<std::uint8_t>(filled(DType::kBool, 1), {1})[3], 1);
  CHECK_THROWS(Error, HashTable(filled(DType::kI8, 128)));
  CHECK_THROWS(Error, HashTable(filled(DType::kI64, 0x1p63)));
  CHECK_THROWS(Error, HashTable(filled(DType::kU8, 0.5)));
  CHECK_THROWS(Error, HashTable(filled(DType::kU8, -1)));
  CHECK_THROWS(Error, HashTable(filled(DType::kBool, 2)));
  CHECK_THROWS(Error, HashTable(filled(DType::kU8, std::nan(""))));
  CHECK_EQ(new_rows<std::uint8_t>(filled(DType::kF8_E4M3, 0), {1})[3], 0);
  CHECK_THROWS(Error, HashTable(filled(DType::kF8_E4M3, 1)));
}

TEST(numbers_that_a_type_has_not_are_refused) {
  using enum Initializer::Kind;
  const Error error = CHECK_THROWS(Error, HashTable(with(DType::kF16, {kConstant, 1e6})));
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(std::string(error.what()).find("slot 'embedding' of F16: cannot hold 1e+06") == 0);
  CHECK_THROWS(Error, HashTable(with(DType::kBF16, {kConstant, -3.4e38 * 2})));
  CHECK_THROWS(Error, HashTable(with(DType::kF32, {kConstant, 1e39})));
  CHECK_THROWS(Error, HashTable(with(DType::kF16, {kUniform, 0, 1e6})));
  CHECK_THROWS(Error, HashTable(with(DType::kF16, {kNormal, 1e6, 1})));
  CHECK_THROWS(Error, HashTable(with(DType::kF64, {kUniform, -1.7e308, 1.7e308})));
  CHECK_EQ(new_rows<std::uint16_t>(with(DType::kF16, {kConstant, 65504}), {1})[0], 0x7BFF);
  // Asked for by name they are fine.
  CHECK_EQ(new_rows<std::uint16_t>(with(DType::kF16, {kConstant, INFINITY}), {1})[0], 0x7C00);
  CHECK(std::isnan(new_rows<float>(with(DType::kF32, {kConstant, NAN}), {1})[0]));
}

TEST(senseless_initializers_are_refused) {
  using enum Initializer::Kind;
  CHECK_THROWS(Error, HashTable(with(DType::kF32, {kUniform, 1, 0})));
  CHECK_THROWS(Error, HashTable(with(DType::kF32, {kNormal, 0, -1})));
  CHECK_THROWS(Error, HashTable(with(DType::kF32, {kNormal, std::nan(""), 1})));
  CHECK(CHECK_THROWS(Error, HashTable(with(DType::kI32, {kUniform, 0, 1}))).code() == ErrorCode::kUnsupported);
  CHECK_THROWS(Error, initializer_kind("xavier"));
  CHECK(initializer_kind("truncated_normal") == kTruncatedNormal);
}

TEST(an_initializer_is_for_rows_to_come) {
  HashTable table(options(1));
  lookup(table, {1}, 1, true);
  table.set_initializer(0, {Initializer::Kind::kConstant, 2.5});
  CHECK(lookup(table, {1, 2}, 1, true) == (Floats{0, 2.5}));
  CHECK_THROWS(Error, table.set_initializer(3, {}));
}

RUN_TESTS()
