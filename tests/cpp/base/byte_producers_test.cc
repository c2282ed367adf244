#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "produced_bytes.h"
#include "random_bytes.h"
#include "weightstore/byte_producer.h"
#include "weightstore/error.h"

using namespace weightstore;

namespace {

void gather_naively(const StridedArray& array, std::size_t dim, const std::byte* at, std::vector<std::byte>& out) {
  if (dim == array.shape.size()) {
    out.insert(out.end(), at, at + array.item_bytes);
    return;
  }
  for (std::uint64_t i = 0; i < array.shape[dim]; ++i) {
    gather_naively(array, dim + 1, at + static_cast<std::int64_t>(i) * array.byte_strides[dim], out);
  }
}

std::vector<std::byte> gather_naively(const StridedArray& array) {
  std::vector<std::byte> out;
  gather_naively(array, 0, array.data, out);
  return out;
}

template <class T>
std::vector<T> values_of(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

TEST(resident_bytes_are_not_copied) {
  const auto bytes = random_bytes(100, 1);
  const auto producer = resident_bytes(bytes);
  CHECK_EQ(producer->size(), 100u);
  CHECK(producer->resident()->data() == bytes.data());
  CHECK(all_of(*producer, 7) == bytes);
}

TEST(resident_bytes_keep_their_owner) {
  auto owner = std::make_shared<std::vector<std::byte>>(random_bytes(10, 1));
  const std::weak_ptr<void> watch = owner;
  auto producer = resident_bytes(*owner, owner);
  owner.reset();
  CHECK(!watch.expired());
  producer.reset();
  CHECK(watch.expired());
}

TEST(deferred_bytes_are_asked_for_in_order) {
  std::vector<std::uint64_t> offsets;
  const auto producer = deferred_bytes(10, [&](std::uint64_t offset, MutableBytes out) {
    offsets.push_back(offset);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(offset + i);
  });
  CHECK(!producer->resident());
  CHECK(offsets.empty());
  const auto bytes = all_of(*producer, 4);
  CHECK((offsets == std::vector<std::uint64_t>{0, 4, 8}));
  for (std::size_t i = 0; i < 10; ++i) CHECK_EQ(std::to_integer<std::size_t>(bytes[i]), i);
}

TEST(source_bytes_are_a_range_of_the_source) {
  const auto bytes = random_bytes(100, 2);
  const auto source = memory_source(bytes);
  const auto producer = source_bytes(source, 10, 50);
  const std::vector<std::byte> expected(bytes.begin() + 10, bytes.begin() + 60);
  CHECK(all_of(*producer, 9) == expected);
  CHECK(producer->resident()->data() == bytes.data() + 10);
}

TEST(source_bytes_outside_the_source_are_refused) {
  const auto bytes = random_bytes(100, 2);
  const auto source = memory_source(bytes);
  CHECK(CHECK_THROWS(Error, source_bytes(source, 60, 41)).code() == ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, source_bytes(source, ~0ull, 2)).code() == ErrorCode::kInvalidArgument);
  CHECK_EQ(source_bytes(source, 100, 0)->size(), 0u);
}

TEST(contiguous_arrays_are_resident) {
  const auto bytes = random_bytes(2 * 3 * 4, 3);
  const auto producer = strided_bytes({bytes.data(), 4, {2, 1, 3}, {12, 999, 4}});
  CHECK(producer->resident()->data() == bytes.data());
  CHECK_EQ(producer->resident()->size(), 24u);
  CHECK(strided_bytes({bytes.data(), 4, {}, {}})->resident()->size() == 4);
  CHECK(strided_bytes({bytes.data(), 4, {2, 0, 3}, {12, 4, 8}})->resident()->empty());
}

TEST(strided_arrays_match_a_naive_gather) {
  std::mt19937 random(4);
  const auto memory = random_bytes(1 << 20, 5);
  const std::byte* middle = memory.data() + memory.size() / 2;
  for (int round = 0; round < 3000; ++round) {
    StridedArray array;
    array.data = middle;
    array.item_bytes = 1 + random() % 16;
    const std::size_t rank = random() % 5;
    std::int64_t extent = static_cast<std::int64_t>(array.item_bytes);
    for (std::size_t i = 0; i < rank; ++i) {
      array.shape.push_back(random() % 20 == 0 ? 0 : 1 + random() % 9);
      switch (random() % 4) {
        case 0:
          array.byte_strides.push_back(0);
          break;
        case 1:
          array.byte_strides.push_back(extent);
          break;
        case 2:
          array.byte_strides.push_back(-extent);
          break;
        default:
          array.byte_strides.push_back(static_cast<std::int64_t>(random() % 2001) - 1000);
          break;
      }
      extent = std::min<std::int64_t>(extent * static_cast<std::int64_t>(array.shape.back() + 1), 5000);
    }
    const auto expected = gather_naively(array);
    const auto producer = strided_bytes(array);
    CHECK_EQ(producer->size(), expected.size());
    CHECK(all_of(*producer, 1 + random() % 200) == expected);
    CHECK(all_of(*producer, expected.size() + 1) == expected);
    const auto resident = producer->resident();
    if (resident) CHECK(std::ranges::equal(*resident, expected));
  }
}

TEST(permuted_contiguous_arrays_match_a_naive_gather) {
  std::mt19937 random(6);
  const auto memory = random_bytes(100 * 70 * 16, 7);
  for (const std::size_t item : {1, 2, 3, 4, 8, 16}) {
    const auto width = static_cast<std::int64_t>(item);
    StridedArray transposed{memory.data(), item, {70, 100}, {width, 70 * width}};
    CHECK(all_of(*strided_bytes(transposed), 4096) == gather_naively(transposed));
    StridedArray reversed{memory.data() + 6999 * width, item, {100, 70}, {-70 * width, -width}};
    CHECK(all_of(*strided_bytes(reversed), 4096) == gather_naively(reversed));
    StridedArray permuted{memory.data(), item, {7, 100, 10}, {10 * width, 70 * width, width}};
    CHECK(all_of(*strided_bytes(permuted), 999) == gather_naively(permuted));
    StridedArray channels{memory.data(), item, {10, 7, 10, 10}, {700 * width, width, 70 * width, 7 * width}};
    CHECK(all_of(*strided_bytes(channels), 999) == gather_naively(channels));
  }
}

TEST(a_block_may_be_cut_at_every_byte) {
  const auto memory = random_bytes(4096, 8);
  for (const StridedArray& array : {StridedArray{memory.data(), 4, {3, 5}, {4, 40}},
                                    StridedArray{memory.data() + 2000, 3, {4, 2, 3}, {-100, 30, 7}},
                                    StridedArray{memory.data(), 2, {3, 20}, {100, 2}}}) {
    const auto expected = gather_naively(array);
    const auto producer = strided_bytes(array);
    for (std::size_t begin = 0; begin <= expected.size(); ++begin) {
      for (std::size_t end = begin; end <= expected.size(); ++end) {
        std::vector<std::byte> out(end - begin);
        producer->fill(begin, out);
        CHECK(std::equal(out.begin(), out.end(), expected.begin() + begin));
      }
    }
  }
}

TEST(negation_flips_every_sign) {
  const std::vector<float> values{1.0f, -2.0f, 0.0f, -INFINITY, 5.5f, -0.0f};
  StridedArray array{reinterpret_cast<const std::byte*>(values.data()), 4, {6}, {4}};
  array.sign_bytes = 4;
  array.negate = true;
  const auto producer = strided_bytes(array);
  CHECK(!producer->resident());
  for (const std::size_t block : {1, 3, 4, 24}) {
    const auto got = values_of<float>(all_of(*producer, block));
    for (std::size_t i = 0; i < values.size(); ++i) {
      CHECK_EQ(got[i], -values[i]);
      CHECK_EQ(std::signbit(got[i]), !std::signbit(values[i]));
    }
  }
}

TEST(conjugation_flips_imaginary_parts) {
  std::vector<std::complex<float>> values;
  for (int i = 0; i < 50; ++i) values.emplace_back(static_cast<float>(i + 1), static_cast<float>(i - 25) + 0.5f);
  StridedArray array{reinterpret_cast<const std::byte*>(values.data()), 8, {5, 10}, {8, 40}};
  array.sign_bytes = 4;
  array.conjugate = true;
  for (const std::size_t block : {1, 5, 8, 33, 1000}) {
    const auto conjugated = values_of<std::complex<float>>(all_of(*strided_bytes(array), block));
    for (std::size_t i = 0; i < 50; ++i) CHECK(conjugated[i] == std::conj(values[i % 10 * 5 + i / 10]));
  }
  array.negate = true;
  const auto both = values_of<std::complex<float>>(all_of(*strided_bytes(array), 21));
  for (std::size_t i = 0; i < 50; ++i) CHECK(both[i] == -std::conj(values[i % 10 * 5 + i / 10]));
}

TEST(bytes_at_a_null_pointer_are_refused) {
  const std::byte* const null = nullptr;
  CHECK(CHECK_THROWS(Error, resident_bytes({null, 4})).code() == ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, strided_bytes({null, 4, {2}, {8}})).code() == ErrorCode::kInvalidArgument);
  CHECK_EQ(resident_bytes({null, std::size_t{0}})->size(), 0u);
  CHECK_EQ(strided_bytes({null, 4, {2, 0}, {8, 4}})->size(), 0u);
}

TEST(senseless_arrays_are_refused) {
  const std::byte data{};
  CHECK_THROWS(Error, strided_bytes({&data, 0, {}, {}}));
  CHECK_THROWS(Error, strided_bytes({&data, 17, {}, {}}));
  CHECK_THROWS(Error, strided_bytes({&data, 4, {1}, {}}));
  CHECK(CHECK_THROWS(Error, strided_bytes({&data, 4, {1ull << 62, 4}, {0, 0}})).code() == ErrorCode::kLimit);
  StridedArray array{&data, 4, {1}, {4}};
  array.sign_bytes = 3;
  array.negate = true;
  CHECK_THROWS(Error, strided_bytes(array));
  array.sign_bytes = 4;
  array.conjugate = true;  // a pair does not fit into four bytes
  CHECK_THROWS(Error, strided_bytes(array));
}

RUN_TESTS()
