#include "file/slice.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "recorded_source.h"
#include "test_files.h"
#include "weightstore/error.h"

using namespace weightstore;

namespace {

// The selection by read_slice(), with what it read. The tensor lies behind some other bytes.
std::string sliced(DType dtype, const Shape& shape, const std::vector<SliceDim>& dims, const std::string& bytes,
                   std::vector<RecordedSource::Read>* reads = nullptr) {
  std::string out(slice_bytes(dtype, shape, dims), '?');
  const RecordedSource source("before" + bytes);
  read_slice(dtype, shape, dims, source, 6, {reinterpret_cast<std::byte*>(out.data()), out.size()});
  for (const auto& read : source.reads) CHECK(read.offset >= 6);
  if (reads != nullptr) *reads = source.reads;
  return out;
}

// The same, element by element.
std::string naive(std::size_t item, const Shape& shape, const std::vector<SliceDim>& dims, const std::string& bytes) {
  std::string out;
  std::vector<std::uint64_t> counter(shape.size(), 0);
  for (const SliceDim& dim : dims) {
    if (dim.count == 0) return out;
  }
  for (;;) {
    std::uint64_t index = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const auto step = static_cast<std::uint64_t>(dims[i].step);
      index = index * shape[i] + dims[i].start + counter[i] * step;
    }
    out += bytes.substr(index * item, item);
    std::size_t axis = shape.size();
    while (axis > 0 && ++counter[axis - 1] == dims[axis - 1].count) counter[--axis] = 0;
    if (axis == 0) return out;
  }
}

std::vector<SliceDim> whole(const Shape& shape) {
  std::vector<SliceDim> dims;
  for (const std::uint64_t size : shape) dims.push_back({0, 1, size});
  return dims;
}

bool refused(DType dtype, const Shape& shape, const std::vector<SliceDim>& dims) {
  return CHECK_THROWS(Error, slice_bytes(dtype, shape, dims)).code() == ErrorCode::kInvalidArgument;
}

}  // namespace

TEST(random_selections_equal_the_naive_ones) {
  std::mt19937 random(7);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  const DType types[] = {DType::kU8, DType::kF16, DType::kF32, DType::kC64};
  for (int round = 0; round < 20'000; ++round) {
    const DType dtype = types[below(4)];
    Shape shape(below(5));
    std::uint64_t elements = 1;
    for (std::uint64_t& size : shape) elements *= size = 1 + below(6);
    std::vector<SliceDim> dims;
    for (const std::uint64_t size : shape) {
      SliceDim dim;
      dim.step = static_cast<std::int64_t>(1 + below(3));
      const std::uint64_t fit = (size - 1) / static_cast<std::uint64_t>(dim.step) + 1;
      dim.count = below(8) == 0 ? 0 : 1 + below(fit);
      const std::uint64_t span = dim.count == 0 ? 0 : (dim.count - 1) * static_cast<std::uint64_t>(dim.step);
      dim.start = below(size - span);
      if (below(2) == 0) {
        dim.start += span;
        dim.step = -dim.step;
      }
      dims.push_back(dim);
    }
    const std::size_t item = bits_of(dtype) / 8;
    const std::string bytes = test_files::pattern(elements * item, static_cast<std::uint32_t>(round));
    CHECK_EQ(sliced(dtype, shape, dims, bytes), naive(item, shape, dims, bytes));
  }
}

TEST(long_axes_are_read_in_batches) {
  const Shape shape = {700'001, 2};
  const std::string bytes = test_files::pattern(shape[0] * shape[1] * 4);
  for (const SliceDim rows : {SliceDim{0, 2, 350'001}, SliceDim{700'000, -1, 700'001}, SliceDim{699'999, -3, 233'334},
                              SliceDim{1, 1000, 700}, SliceDim{0, 5000, 141}}) {
    const std::vector<SliceDim> dims = {rows, {1, 1, 1}};
    std::vector<RecordedSource::Read> reads;
    CHECK(sliced(DType::kF32, shape, dims, bytes, &reads) == naive(4, shape, dims, bytes));
    for (const auto& read : reads) CHECK(read.length <= (1u << 20));
  }
}

TEST(whole_rows_are_one_read) {
  const Shape shape = {100, 10, 8};
  const std::string bytes = test_files::pattern(100 * 10 * 8);
  std::vector<RecordedSource::Read> reads;
  CHECK_EQ(sliced(DType::kU8, shape, {{20, 1, 30}, {0, 1, 10}, {0, 1, 8}}, bytes, &reads),
           bytes.substr(20 * 80, 30 * 80));
  CHECK_EQ(reads.size(), 1u);
  CHECK_EQ(sliced(DType::kU8, shape, whole(shape), bytes, &reads), bytes);
  CHECK_EQ(reads.size(), 1u);
}

TEST(wide_gaps_are_not_read) {
  const Shape shape = {8, 100'000};
  const std::string bytes = test_files::pattern(800'000);
  std::vector<RecordedSource::Read> reads;
  const std::vector<SliceDim> dims = {{0, 1, 8}, {5, 1, 10}};
  CHECK_EQ(sliced(DType::kU8, shape, dims, bytes, &reads), naive(1, shape, dims, bytes));
  std::uint64_t total = 0;
  for (const auto& read : reads) total += read.length;
  CHECK_EQ(total, 80u);
}

TEST(a_single_index_ignores_its_step) {
  const std::string bytes = test_files::pattern(24);
  for (const std::int64_t step : {INT64_MAX, INT64_MIN, std::int64_t{-1}, std::int64_t{1'000'000'007}}) {
    CHECK_EQ(sliced(DType::kF32, {3, 2}, {{1, step, 1}, {0, 1, 2}}, bytes), bytes.substr(8, 8));
    CHECK_EQ(sliced(DType::kF32, {3, 2}, {{1, step, 1}, {1, step, 1}}, bytes), bytes.substr(12, 4));
    CHECK_EQ(sliced(DType::kF32, {3, 2}, {{0, 1, 3}, {1, step, 1}}, bytes),
             bytes.substr(4, 4) + bytes.substr(12, 4) + bytes.substr(20, 4));
  }
}

TEST(scalars_and_empty_selections) {
  CHECK_EQ(sliced(DType::kF64, {}, {}, "12345678"), "12345678");
  CHECK_EQ(slice_bytes(DType::kF32, {3, 0}, std::vector<SliceDim>{{0, 1, 3}, {0, 1, 0}}), 0u);
  CHECK_EQ(slice_bytes(DType::kF32, {3, 4}, std::vector<SliceDim>{{0, 1, 0}, {0, 1, 4}}), 0u);
  // Nothing is selected, so start and step say nothing.
  CHECK_EQ(slice_bytes(DType::kF32, {3}, std::vector<SliceDim>{{3, 0, 0}}), 0u);
  // Sizes that cannot be multiplied are not multiplied.
  CHECK_EQ(
      slice_bytes(DType::kF32, {0, UINT64_MAX, 3}, std::vector<SliceDim>{{0, 1, 0}, {0, 1, UINT64_MAX}, {0, 1, 3}}),
      0u);
}

TEST(selections_outside_are_refused) {
  CHECK(refused(DType::kF32, {4}, {}));
  CHECK(refused(DType::kF32, {4}, {{0, 1, 4}, {0, 1, 1}}));
  CHECK(refused(DType::kF32, {4}, {{0, 1, 5}}));
  CHECK(refused(DType::kF32, {4}, {{4, 1, 1}}));
  CHECK(refused(DType::kF32, {4}, {{1, 1, 4}}));
  CHECK(refused(DType::kF32, {4}, {{2, -1, 4}}));
  CHECK(refused(DType::kF32, {4}, {{0, 0, 1}}));
  CHECK(refused(DType::kF32, {0}, {{0, 1, 1}}));
  CHECK(refused(DType::kF32, {4}, {{0, INT64_MAX, 3}}));
  CHECK(refused(DType::kF32, {4}, {{3, INT64_MIN, UINT64_MAX}}));
  CHECK(refused(DType::kF32, {4}, {{UINT64_MAX, 1, 2}}));
  CHECK(refused(DType::kQFloat, {4}, {{0, 1, 4}}));
}

TEST(an_output_of_another_size_is_refused) {
  std::string out(12, '\0');
  const std::vector<SliceDim> dims = {{0, 1, 2}};
  const RecordedSource source(std::string(16, '\0'));
  CHECK_THROWS(Error, read_slice(DType::kF32, {4}, dims, source, 0, {reinterpret_cast<std::byte*>(out.data()), 12}));
  CHECK_THROWS(Error, read_slice(DType::kF32, {4}, dims, source, 0, {}));
}

TEST(elements_smaller_than_a_byte_are_taken_by_whole_bytes) {
  const std::string bytes = "abcdef";  // F4 [3, 4]: two bytes a row
  CHECK_EQ(sliced(DType::kF4, {3, 4}, {{2, -2, 2}, {0, 1, 4}}, bytes), "efab");
  CHECK_EQ(sliced(DType::kF4, {3, 4}, whole({3, 4}), bytes), bytes);
  CHECK_EQ(sliced(DType::kF6_E2M3, {2, 4}, {{1, 1, 1}, {0, 1, 4}}, bytes), "def");
  CHECK(refused(DType::kF4, {3, 4}, {{0, 1, 3}, {0, 1, 2}}));
  CHECK(refused(DType::kF4, {3, 4}, {{0, 1, 3}, {0, 2, 2}}));
  // Rows of three half-bytes: only all of them end on a byte.
  CHECK_EQ(sliced(DType::kF4, {4, 3}, whole({4, 3}), bytes), bytes);
  CHECK(refused(DType::kF4, {4, 3}, {{0, 1, 2}, {0, 1, 3}}));
  CHECK(refused(DType::kF4, {4, 3}, {{1, 1, 1}, {0, 1, 3}}));
}

RUN_TESTS()
