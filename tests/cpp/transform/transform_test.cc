// Casts and transposes on several threads, and as producers: by themselves, chained, and on their way into a file.

#include "weightstore/transform.h"

#include <algorithm>
#include <vector>

#include "check.h"
#include "produced_bytes.h"
#include "random_bytes.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

using namespace weightstore;

namespace {

std::vector<std::byte> casted(ConstBytes in, DType from, DType to) {
  std::vector<std::byte> out(cast_size(in.size(), from, to));
  cast(in, from, to, out);
  return out;
}

std::vector<std::byte> transposed(ConstBytes in, std::size_t item, std::uint64_t rows, std::uint64_t columns) {
  std::vector<std::byte> out(in.size());
  transpose(in, item, rows, columns, out);
  return out;
}

// Bytes that are not in memory, and must be asked for in order and once.
class Stream final : public ByteProducer {
 public:
  explicit Stream(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  std::uint64_t size() const override { return bytes_.size(); }
  void fill(std::uint64_t offset, MutableBytes out) override {
    if (offset == 0) ++passes;
    CHECK(offset == 0 || offset == next_);
    most_asked = std::max(most_asked, out.size());
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    next_ = offset + out.size();
  }
  void finished() override { ++finished_calls; }

  int passes = 0;
  int finished_calls = 0;
  std::size_t most_asked = 0;

 private:
  const std::vector<std::byte> bytes_;
  std::uint64_t next_ = 0;
};

}  // namespace

TEST(threads_do_not_change_a_cast) {
  const auto in = random_bytes(3'000'001 * 4, 3);
  std::vector<std::byte> alone(in.size() / 2);
  kernels::cast(in, DType::kF32, DType::kBF16, alone);
  for (const unsigned threads : {0u, 1u, 5u}) {
    std::vector<std::byte> together(in.size() / 2);
    cast(in, DType::kF32, DType::kBF16, together, threads);
    CHECK(alone == together);
  }
  CHECK(CHECK_THROWS(Error, cast(in, DType::kF32, DType::kF64, alone)).code() == ErrorCode::kInvalidArgument);
}

TEST(threads_do_not_change_a_transpose) {
  constexpr std::size_t kBytes = 5u << 20;
  for (const std::size_t item : {1u, 2u, 4u, 8u, 16u}) {
    // Rows aligned to 16 bytes and not; wide, and tall.
    for (const std::size_t rows : {std::size_t{1024}, std::size_t{1021}, std::size_t{3}, kBytes / 3 / item}) {
      const std::size_t columns = kBytes / rows / item;
      const auto in = random_bytes(rows * columns * item, 9);
      std::vector<std::byte> alone(in.size());
      kernels::transpose(in, item, rows, columns, alone);
      std::vector<std::byte> together(in.size());
      transpose(in, item, rows, columns, together, 3);
      CHECK(alone == together);
      std::vector<std::byte> out(1);
      CHECK(CHECK_THROWS(Error, transpose(in, item, rows, columns, out)).code() == ErrorCode::kInvalidArgument);
    }
  }
}

TEST(casts_in_blocks_that_cut_numbers) {
  for (const auto& [from, to] : {std::pair{DType::kF32, DType::kF16},
                                 {DType::kBF16, DType::kF64},
                                 {DType::kF64, DType::kBF16},
                                 {DType::kF16, DType::kF32}}) {
    const auto in = random_bytes(1000 * bits_of(from) / 8, 1);
    const auto expected = casted(in, from, to);
    for (const std::size_t block : {1, 3, 7, 64, 1001, 100'000}) {
      CHECK(all_of(*cast_bytes(resident_bytes(in), from, to), block) == expected);
      const auto stream = std::make_shared<Stream>(in);
      CHECK(all_of(*cast_bytes(stream, from, to), block) == expected);
      CHECK_EQ(stream->passes, 1);
      CHECK_EQ(stream->finished_calls, 1);
    }
  }
}

TEST(a_cast_holds_only_a_step_of_its_input) {
  const auto in = random_bytes(4'000'000, 1);
  const auto stream = std::make_shared<Stream>(in);
  const auto producer = cast_bytes(stream, DType::kF32, DType::kBF16);
  CHECK_EQ(stream->passes, 0);
  CHECK(all_of(*producer, 1 << 20) == casted(in, DType::kF32, DType::kBF16));
  CHECK(stream->most_asked <= 256 << 10);
}

TEST(a_cast_of_resident_bytes_converts_what_is_asked_for) {
  const auto in = random_bytes(4000, 1);
  const auto expected = casted(in, DType::kF32, DType::kF16);
  const auto producer = cast_bytes(resident_bytes(in), DType::kF32, DType::kF16);
  std::vector<std::byte> out(100);
  producer->fill(1501, out);  // in the middle, before anything else
  CHECK(std::equal(out.begin(), out.end(), expected.begin() + 1501));
}

TEST(no_cast_is_no_producer) {
  const auto in = random_bytes(64, 1);
  const auto bytes = resident_bytes(in);
  CHECK(cast_bytes(bytes, DType::kF32, DType::kF32) == bytes);
  CHECK(CHECK_THROWS(Error, cast_bytes(bytes, DType::kU8, DType::kU8)).code() == ErrorCode::kUnsupported);
  CHECK(transposed_bytes(bytes, 4, 16, 1) == bytes);
}

TEST(transposes_in_blocks_that_cut_columns) {
  for (const auto& [rows, columns] :
       {std::pair<std::size_t, std::size_t>{1, 1}, {2, 3}, {37, 150}, {150, 37}, {500, 3}}) {
    for (const std::size_t item : {1, 2, 4, 8, 16}) {
      const auto in = random_bytes(rows * columns * item, 3);
      const auto expected = transposed(in, item, rows, columns);
      for (const std::size_t block : {1, 5, 64, 1000, 1'000'000}) {
        CHECK(all_of(*transposed_bytes(resident_bytes(in), item, rows, columns), block) == expected);
        const auto stream = std::make_shared<Stream>(in);
        CHECK(all_of(*transposed_bytes(stream, item, rows, columns), block) == expected);
        CHECK(stream->passes == 1 || rows == 1);
      }
    }
  }
}

TEST(columns_longer_than_a_band_may_be) {
  const std::size_t rows = (32u << 20) / 4 + 3;
  const auto in = random_bytes(rows * 2 * 4, 3);
  CHECK(all_of(*transposed_bytes(resident_bytes(in), 4, rows, 2), 4 << 20) == transposed(in, 4, rows, 2));
}

TEST(chains_read_their_input_once_and_can_be_written_again) {
  const std::size_t rows = 300;
  const std::size_t columns = 1000;
  const auto in = random_bytes(rows * columns * 4, 4);
  const auto expected = casted(transposed(in, 4, rows, columns), DType::kF32, DType::kF16);
  const auto stream = std::make_shared<Stream>(in);
  const auto cast_last = cast_bytes(transposed_bytes(stream, 4, rows, columns), DType::kF32, DType::kF16);
  CHECK(all_of(*cast_last, 999) == expected);
  CHECK(all_of(*cast_last, 4096) == expected);
  CHECK_EQ(stream->passes, 2);
  const auto other = std::make_shared<Stream>(in);
  const auto cast_first = transposed_bytes(cast_bytes(other, DType::kF32, DType::kF16), 2, rows, columns);
  CHECK(all_of(*cast_first, 999) == expected);
  CHECK_EQ(other->passes, 1);
}

TEST(through_the_writer) {
  const std::size_t rows = 1500;
  const std::size_t columns = 1100;
  const auto in = random_bytes(rows * columns * 4, 5);
  Writer writer;
  writer.add({"half", DType::kF16, {rows, columns}, cast_bytes(resident_bytes(in), DType::kF32, DType::kF16), {}, {}});
  writer.add({"turned", DType::kF32, {columns, rows}, transposed_bytes(resident_bytes(in), 4, rows, columns), {}, {}});
  const auto file = writer.write_bytes(Format::kSafetensors);
  const Reader reader = Reader::from_static(file);
  CHECK(std::ranges::equal(reader.view(reader.table().at("half"))->bytes, casted(in, DType::kF32, DType::kF16)));
  CHECK(std::ranges::equal(reader.view(reader.table().at("turned"))->bytes, transposed(in, 4, rows, columns)));
}

TEST(sizes_that_do_not_fit_are_refused) {
  const auto in = random_bytes(30, 1);
  CHECK(CHECK_THROWS(Error, cast_bytes(resident_bytes(in), DType::kF32, DType::kF16)).code() ==
        ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, transposed_bytes(resident_bytes(in), 4, 2, 4)).code() == ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, transposed_bytes(resident_bytes(in), 3, 2, 5)).code() == ErrorCode::kUnsupported);
}

RUN_TESTS()
