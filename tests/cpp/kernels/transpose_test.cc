#include <algorithm>
#include <vector>

#include "check.h"
#include "kernels/transpose_view.h"
#include "random_bytes.h"
#include "weightstore/error.h"
#include "weightstore/kernels.h"

using namespace weightstore;

namespace {

constexpr std::size_t kItems[] = {1, 2, 4, 8, 16};

std::vector<std::byte> naive(ConstBytes in, std::size_t item, std::size_t rows, std::size_t columns) {
  std::vector<std::byte> out(in.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      std::copy_n(in.begin() + static_cast<std::ptrdiff_t>((r * columns + c) * item), item,
                  out.begin() + static_cast<std::ptrdiff_t>((c * rows + r) * item));
    }
  }
  return out;
}

}  // namespace

TEST(golden) {
  const std::vector<std::uint16_t> in = {1, 2, 3, 4, 5, 6};
  std::vector<std::uint16_t> out(6);
  kernels::transpose(std::as_bytes(std::span(in)), 2, 2, 3, std::as_writable_bytes(std::span(out)));
  CHECK((out == std::vector<std::uint16_t>{1, 4, 2, 5, 3, 6}));
}

TEST(every_element_size_and_block_edge) {
  // Around the squares that are transposed in registers, the tiles, and nothing at all.
  const std::size_t sides[] = {0, 1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 200};
  for (const std::size_t item : kItems) {
    for (const std::size_t rows : sides) {
      for (const std::size_t columns : sides) {
        const auto in = random_bytes(rows * columns * item, static_cast<unsigned>(rows * 1000 + columns));
        std::vector<std::byte> out(in.size());
        kernels::transpose(in, item, rows, columns, out);
        CHECK(out == naive(in, item, rows, columns));
      }
    }
  }
}

TEST(large_matrices_go_around_the_caches) {
  constexpr std::size_t kBytes = 2u << 20;
  for (const std::size_t item : kItems) {
    // Rows aligned to 16 bytes and not; wide, and tall.
    for (const std::size_t rows : {std::size_t{1024}, std::size_t{1021}, std::size_t{3}, kBytes / 3 / item}) {
      const std::size_t columns = kBytes / rows / item;
      const auto in = random_bytes(rows * columns * item, 9);
      const auto expected = naive(in, item, rows, columns);
      std::vector<std::byte> out(in.size() + 1);
      kernels::transpose(in, item, rows, columns, MutableBytes(out).first(in.size()));
      CHECK(std::equal(expected.begin(), expected.end(), out.begin()));
      kernels::transpose(in, item, rows, columns, MutableBytes(out).subspan(1));  // nothing is aligned
      CHECK(std::equal(expected.begin(), expected.end(), out.begin() + 1));
    }
  }
}

TEST(a_block_leaves_its_surroundings_alone) {
  const auto in = random_bytes(50 * 70 * 4, 4);
  std::vector<std::byte> out(30 * 40 * 4, std::byte{0xee});
  // Rows 10 to 30 and columns 20 to 45 of 50 x 70, to the left of rows that are 40 long.
  kernels::transpose_view({in.data() + (10 * 70 + 20) * 4, 70 * 4, 20, 25, 4}, out.data(), 40 * 4, false);
  for (std::size_t c = 0; c < 30; ++c) {
    for (std::size_t i = 0; i < 40 * 4; ++i) {
      const std::byte expected = c < 25 && i < 20 * 4 ? in[((10 + i / 4) * 70 + 20 + c) * 4 + i % 4] : std::byte{0xee};
      CHECK(out[c * 40 * 4 + i] == expected);
    }
  }
}

TEST(twice_is_the_identity) {
  const auto in = random_bytes(333 * 1777 * 2, 2);
  std::vector<std::byte> once(in.size());
  std::vector<std::byte> twice(in.size());
  kernels::transpose(in, 2, 333, 1777, once);
  kernels::transpose(once, 2, 1777, 333, twice);
  CHECK(once != in);
  CHECK(twice == in);
}

TEST(what_is_no_matrix_is_refused) {
  std::vector<std::byte> bytes(24);
  std::vector<std::byte> out(24);
  for (const std::size_t item : {0, 3, 32}) {
    CHECK(CHECK_THROWS(Error, kernels::transpose(bytes, item, 1, 8, out)).code() == ErrorCode::kUnsupported);
  }
  CHECK(CHECK_THROWS(Error, kernels::transpose(bytes, 4, 2, 4, out)).code() == ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, kernels::transpose(bytes, 4, 1ull << 32, (1ull << 32) + 6, out)).code() ==
        ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, kernels::transpose(bytes, 4, 2, 3, MutableBytes(out).first(23))).code() ==
        ErrorCode::kInvalidArgument);
}

RUN_TESTS()
