#include "base/strided/strided_reader.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/strided/strided_source.h"
#include "check.h"
#include "recorded_source.h"
#include "test_files.h"
#include "weightstore/error.h"

using namespace weightstore;

namespace {

using Dim = StridedElements::Dim;

// Positions of all elements in row-major order: from the outermost dimension inwards, every element becomes a row.
std::vector<std::uint64_t> places_of(const StridedElements& elements) {
  std::vector<std::uint64_t> places = {elements.begin};
  for (const Dim& dim : elements.dims) {
    std::vector<std::uint64_t> next;
    for (const std::uint64_t place : places) {
      for (std::uint64_t i = 0; i < dim.count; ++i) next.push_back(place + i * static_cast<std::uint64_t>(dim.stride));
    }
    places = std::move(next);
  }
  return places;
}

std::string naive(const StridedElements& elements, const std::string& bytes) {
  std::string out;
  for (const std::uint64_t place : places_of(elements)) {
    std::string item = bytes.substr(place, elements.item_bytes);
    for (std::size_t i = 0; i < item.size(); i += elements.swap_bytes) {
      std::reverse(item.begin() + static_cast<std::ptrdiff_t>(i),
                   item.begin() + static_cast<std::ptrdiff_t>(i + elements.swap_bytes));
    }
    out += item;
  }
  return out;
}

std::string read(const StridedElements& elements, const ByteSource& source, std::uint64_t offset, std::size_t size) {
  std::string out(size, '?');
  StridedReader(elements).read(source, offset, std::as_writable_bytes(std::span(out)));
  return out;
}

std::shared_ptr<const ByteSource> in_memory(const std::string& bytes) {
  return memory_source(std::as_bytes(std::span(bytes)));
}

// Elements of random strides that lie inside `size` bytes.
StridedElements random_elements(std::mt19937& random, std::uint64_t size) {
  StridedElements elements;
  elements.item_bytes = std::uint64_t{1} << random() % 5;
  elements.swap_bytes = std::min<std::uint64_t>(8, elements.item_bytes >> random() % 2);
  if (elements.swap_bytes == 0) elements.swap_bytes = 1;
  std::uint64_t room = size - elements.item_bytes;  // for strides to reach over
  std::uint64_t before = 0;
  for (std::size_t rank = random() % 5; rank > 0; --rank) {
    const std::uint64_t count = 1 + random() % 7;
    const std::uint64_t most = count == 1 ? 1000 : std::min<std::uint64_t>(room / (count - 1), 40'000);
    const std::uint64_t strides[] = {0, elements.item_bytes, random() % (most + 1), random() % 50};
    const std::uint64_t stride = std::min(strides[random() % 4], most);
    const bool down = random() % 3 == 0;
    if (count > 1) room -= (count - 1) * stride;
    if (count > 1 && down) before += (count - 1) * stride;
    const auto step = static_cast<std::int64_t>(stride);
    elements.dims.push_back({count, down ? -step : step});
  }
  elements.begin = before + random() % (room + 1);
  return elements;
}

}  // namespace

TEST(random_elements_equal_the_naive_ones) {
  std::mt19937 random(3);
  const std::string bytes = test_files::pattern(300'000);
  for (int round = 0; round < 5'000; ++round) {
    const StridedElements elements = random_elements(random, bytes.size());
    const std::string expected = naive(elements, bytes);
    const StridedReader reader(elements);
    CHECK_EQ(reader.size(), expected.size());
    if (reader.is_contiguous()) CHECK_EQ(bytes.substr(reader.begin(), expected.size()), expected);
    const RecordedSource file(bytes);
    const auto memory = in_memory(bytes);
    CHECK(read(elements, file, 0, expected.size()) == expected);
    CHECK(read(elements, *memory, 0, expected.size()) == expected);
    const std::uint64_t begin = random() % expected.size();
    const std::uint64_t size = random() % (expected.size() - begin + 1);
    CHECK(read(elements, file, begin, size) == expected.substr(begin, size));
    CHECK(read(elements, *memory, begin, size) == expected.substr(begin, size));
  }
}

TEST(ranges_of_every_place_and_size) {
  const std::string bytes = test_files::pattern(4096);
  StridedElements elements;
  elements.begin = 5;
  elements.item_bytes = 2;
  elements.dims = {{3, 14}, {1, 999}, {4, 0}, {5, 60}, {2, 2}};
  elements.swap_bytes = 2;
  const std::string expected = naive(elements, bytes);
  const auto source = strided_source(in_memory(bytes), elements);
  CHECK_EQ(source->size(), expected.size());
  for (std::size_t begin = 0; begin <= expected.size(); ++begin) {
    for (std::size_t size = 0; size <= expected.size() - begin; size += 1 + size / 3) {
      std::string part(size, '\0');
      source->read_at(begin, std::as_writable_bytes(std::span(part)));
      CHECK_EQ(part, expected.substr(begin, size));
    }
  }
  std::string over(2, '\0');
  CHECK(CHECK_THROWS(Error, source->read_at(expected.size() - 1, std::as_writable_bytes(std::span(over)))).code() ==
        ErrorCode::kIo);
}

TEST(repeated_elements_are_read_once) {
  const std::string bytes = "0123456789";
  for (const auto& dims : {std::vector<Dim>{{1000, 0}, {4, 1}},
                           {{3, 4}, {1000, 0}, {2, 1}},
                           {{4, 1}, {500, 0}},
                           {{30, 0}, {2, 5}, {40, 0}, {2, 2}, {50, 0}},
                           {{1000, 0}}}) {
    StridedElements elements;
    elements.dims = dims;
    const RecordedSource source(bytes);
    const std::string expected = naive(elements, bytes);
    CHECK_EQ(read(elements, source, 0, expected.size()), expected);
    CHECK_EQ(source.reads.size(), 1u);
  }
}

// Fortran order: the file's columns are the rows of the result.
TEST(columns_are_read_together_and_in_order) {
  StridedElements elements;
  elements.item_bytes = 4;
  elements.dims = {{1000, 4}, {2000, 4000}};
  const std::string bytes = test_files::pattern(8'000'000);
  const RecordedSource source(bytes);
  CHECK(read(elements, source, 0, bytes.size()) == naive(elements, bytes));
  CHECK(source.reads.size() <= 8);
  std::uint64_t end = 0;
  for (const RecordedSource::Read& read : source.reads) {
    CHECK_EQ(read.offset, end);
    CHECK(read.length <= (1u << 20));
    end += read.length;
  }
  CHECK_EQ(end, bytes.size());
}

TEST(long_runs_are_read_on_their_own) {
  StridedElements elements;
  elements.dims = {{4, 21'000}, {20'000, 1}};
  const std::string bytes = test_files::pattern(84'000);
  const RecordedSource source(bytes);
  CHECK(read(elements, source, 0, 80'000) == naive(elements, bytes));
  CHECK_EQ(source.reads.size(), 4u);
  for (const RecordedSource::Read& read : source.reads) CHECK_EQ(read.length, 20'000u);
}

TEST(elements_of_no_bytes) {
  StridedElements elements;
  elements.dims = {{1ull << 63, 8}, {0, 4}, {4, 1}};
  CHECK_EQ(StridedReader(elements).size(), 0u);
  CHECK(StridedReader(elements).is_contiguous());
  CHECK_EQ(read(elements, RecordedSource(""), 0, 0), "");
}

RUN_TESTS()
