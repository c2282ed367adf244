#include <bit>
#include <cstring>
#include <string>

#include "base/checked.h"
#include "kernels/transpose_view.h"
#include "weightstore/error.h"
#include "weightstore/kernels.h"

namespace weightstore::kernels {

void check_matrix(std::uint64_t bytes, std::size_t item_bytes, std::uint64_t rows, std::uint64_t columns) {
  if (item_bytes > 16 || std::popcount(item_bytes) != 1) {
    throw Error(ErrorCode::kUnsupported, "cannot transpose elements of " + std::to_string(item_bytes) +
                                             " bytes; they must have 1, 2, 4, 8 or 16");
  }
  const auto elements = checked_mul(rows, columns);
  const auto needed = elements ? checked_mul(*elements, item_bytes) : std::nullopt;
  if (needed != bytes) {
    throw Error(ErrorCode::kInvalidArgument, std::to_string(rows) + " x " + std::to_string(columns) + " elements of " +
                                                 std::to_string(item_bytes) + " bytes are not " +
                                                 std::to_string(bytes) + " bytes");
  }
}

void check_transpose(ConstBytes in, std::size_t item_bytes, std::uint64_t rows, std::uint64_t columns, ConstBytes out) {
  check_matrix(in.size(), item_bytes, rows, columns);
  if (out.size() != in.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the matrix has " + std::to_string(in.size()) + " bytes, the output " + std::to_string(out.size()));
  }
}

void transpose(ConstBytes in, std::size_t item_bytes, std::uint64_t rows, std::uint64_t columns, MutableBytes out) {
  check_transpose(in, item_bytes, rows, columns, out);
  if (in.empty()) return;
  if (rows == 1 || columns == 1) {
    std::memcpy(out.data(), in.data(), in.size());
    return;
  }
  transpose_view({in.data(), columns * item_bytes, rows, columns, item_bytes}, out.data(), rows * item_bytes,
                 out.size() >= kStreamBytes);
}

}  // namespace weightstore::kernels
