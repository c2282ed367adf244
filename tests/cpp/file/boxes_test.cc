// Boxes of tensors: written into shared files, read into strided memory, and put together again.

#include <cerrno>
#include <cstring>
#include <numeric>
#include <random>

#include "base/crc32c_parts.h"
#include "check.h"
#include "every_fault.h"
#include "faulty_file_ops.h"
#include "file/boxes/box.h"
#include "file/boxes/box_file.h"
#include "file/boxes/box_reader.h"
#include "file/boxes/box_writer.h"
#include "file/boxes/boxed_tensors.h"
#include "test_files.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"
#include "weightstore/writer.h"

using namespace weightstore;
using test_files::as_bytes;
using test_files::pattern;
using test_files::read_file;
using test_files::TempDir;

namespace {

using Numbers = std::vector<std::uint64_t>;

std::uint64_t product(const Numbers& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{1}, std::multiplies<>());
}

// Calls use(index of an element in the tensor, its number in the box) for every element of a box.
template <class Use>
void for_each_element(const TensorBox& box, const Use& use) {
  for (std::uint64_t i = 0; i < product(box.size); ++i) {
    std::uint64_t rest = i, at = 0, stride = 1;
    for (std::size_t d = box.shape.size(); d-- > 0;) {
      at += (box.begin[d] + rest % box.size[d]) * stride;
      rest /= box.size[d];
      stride *= box.shape[d];
    }
    use(at, i);
  }
}

std::string bytes_of(const TensorBox& box, const std::string& tensor) {
  std::string result(product(box.size) * box.item_bytes, '\0');
  for_each_element(box, [&](std::uint64_t at, std::uint64_t i) {
    std::memcpy(&result[i * box.item_bytes], &tensor[at * box.item_bytes], box.item_bytes);
  });
  return result;
}

// Cuts every dimension in two, at random: up to 2^n boxes, some of them empty.
std::vector<TensorBox> random_boxes(std::uint64_t item_bytes, const Numbers& shape, std::mt19937& random) {
  std::vector<TensorBox> boxes = {{item_bytes, shape, Numbers(shape.size(), 0), shape}};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::uint64_t cut = shape[d] == 0 ? 0 : random() % (shape[d] + 1);
    std::vector<TensorBox> halves;
    for (const TensorBox& box : boxes) {
      TensorBox left = box, right = box;
      left.size[d] = cut;
      right.begin[d] = cut;
      right.size[d] = shape[d] - cut;
      halves.push_back(left);
      halves.push_back(right);
    }
    boxes = std::move(halves);
  }
  return boxes;
}

StridedArray row_major(const TensorBox& box, const std::string& bytes) {
  StridedArray array{reinterpret_cast<const std::byte*>(bytes.data()), box.item_bytes, box.size, {}};
  array.byte_strides.resize(box.size.size());
  auto stride = static_cast<std::int64_t>(box.item_bytes);
  for (std::size_t d = box.size.size(); d-- > 0;) {
    array.byte_strides[d] = stride;
    stride *= static_cast<std::int64_t>(std::max<std::uint64_t>(box.size[d], 1));
  }
  return array;
}

WriteOptions with_checksums() {
  WriteOptions options;
  options.checksums = true;
  return options;
}

const std::vector<Numbers> kShapes = {{}, {1}, {7}, {5, 6}, {3, 4, 5}, {2, 3, 2, 3}, {0, 3}, {600, 700}};

}  // namespace

TEST(runs_are_the_elements_of_the_box) {
  std::mt19937 random(1);
  for (const Numbers& shape : kShapes) {
    for (const TensorBox& box : random_boxes(3, shape, random)) {
      const BoxRuns runs(box);
      CHECK_EQ(runs.bytes(), 3 * product(box.size));
      CHECK_EQ(runs.tensor_bytes(), 3 * product(shape));
      for_each_element(box, [&](std::uint64_t at, std::uint64_t i) {
        CHECK_EQ(runs.offset_of(3 * i / runs.run_bytes()) + 3 * i % runs.run_bytes(), 3 * at);
      });
    }
  }
}

TEST(boxes_that_do_not_fit_are_refused) {
  for (const TensorBox& box : std::vector<TensorBox>{{1, {4}, {3}, {2}},
                                                     {1, {4}, {5}, {0}},
                                                     {1, {4}, {~std::uint64_t{0}}, {2}},
                                                     {1, {4}, {}, {}},
                                                     {0, {4}, {0}, {4}},
                                                     {17, {4}, {0}, {4}},
                                                     {8, {1ull << 40, 1ull << 40}, {0, 0}, {1, 1}}}) {
    CHECK(CHECK_THROWS(Error, BoxRuns(box)).code() == ErrorCode::kInvalidArgument);
  }
}

TEST(boxes_make_the_file_and_its_checksum) {
  const TempDir dir;
  std::mt19937 random(2);
  for (const Numbers& shape : kShapes) {
    const std::string tensor = pattern(4 * product(shape), 3);
    for (const bool direct : {false, true}) {
      const std::string begin = pattern(13, 4);
      create_box_file(dir / "f", begin.size() + tensor.size(), io::system_file_ops());
      std::uint32_t sum = 0;
      for (const TensorBox& box : random_boxes(4, shape, random)) {  // each as if it were another process
        const std::string bytes = bytes_of(box, tensor);
        const NewBox given{"t", 0, begin.size(), box, row_major(box, bytes)};
        const std::filesystem::path path = dir / "f";
        const auto remainders = write_boxes({&path, 1}, {&given, 1}, {direct, true, 2, {}}, io::system_file_ops());
        CHECK_EQ(remainders.size(), 1u);
        sum ^= remainders[0];
      }
      CHECK(read_file(dir / "f") == std::string(begin.size(), '\0') + tensor);
      CHECK_EQ(crc32c_of_remainder(sum, tensor.size()), crc32c(as_bytes(tensor)));
      std::filesystem::remove(dir / "f");
    }
  }
}

TEST(long_runs_go_around_the_page_cache) {
  const TempDir dir;
  // Twelve MiB in three boxes whose ends share blocks.
  const Numbers shape = {3, (4u << 20) + 5};
  const std::string tensor = pattern(product(shape), 5);
  create_box_file(dir / "f", 100 + tensor.size(), io::system_file_ops());
  const std::filesystem::path path = dir / "f";
  std::uint32_t sum = 0;
  for (std::uint64_t row = 0; row < 3; ++row) {
    const TensorBox box{1, shape, {row, 0}, {1, shape[1]}};
    const std::string bytes = bytes_of(box, tensor);
    const NewBox given{"t", 0, 100, box, row_major(box, bytes)};
    sum ^= write_boxes({&path, 1}, {&given, 1}, {true, true, 2, {}}, io::system_file_ops()).front();
  }
  CHECK(read_file(dir / "f") == std::string(100, '\0') + tensor);
  CHECK_EQ(crc32c_of_remainder(sum, tensor.size()), crc32c(as_bytes(tensor)));
}

TEST(every_failing_call_is_reported) {
  const TempDir dir;
  const std::string tensor = pattern(64 * 64, 6);
  const TensorBox box{1, {64, 64}, {0, 8}, {64, 16}};
  const std::string bytes = bytes_of(box, tensor);
  const NewBox given{"t", 0, 0, box, row_major(box, bytes)};
  const std::filesystem::path path = dir / "f";
  for (const int error : {EIO, ENOSPC, EINTR, faulty::kShort}) {
    create_box_file(path, tensor.size(), io::system_file_ops());
    const std::uint64_t faults = faulty::for_every_fault(
        error,
        [&](io::FileOps& ops) {
          write_boxes({&path, 1}, {&given, 1}, {true, true, 1, {}}, ops);
          sync_files({&path, 1}, ops);
        },
        [&](bool succeeded) {
          if (!succeeded) return;
          const std::string found = read_file(path);
          for_each_element(box, [&](std::uint64_t at, std::uint64_t) { CHECK(found[at] == tensor[at]); });
        });
    CHECK(faults > 0);
    std::filesystem::remove(path);
  }
}

TEST(a_file_that_cannot_be_made_is_no_file) {
  const TempDir dir;
  faulty::for_every_fault(
      ENOSPC, [&](io::FileOps& ops) { create_box_file(dir / "f", 5000, ops); },
      [&](bool succeeded) {
        CHECK_EQ(std::filesystem::exists(dir / "f"), succeeded);
        std::filesystem::remove(dir / "f");
      });
}

TEST(values_of_another_size_are_refused_before_anything_is_written) {
  const TempDir dir;
  create_box_file(dir / "f", 100, io::system_file_ops());
  const std::string bytes = pattern(4, 7);
  NewBox box{"t", 0, 0, {1, {10}, {0}, {5}}, row_major({1, {4}, {0}, {4}}, bytes)};
  const std::filesystem::path path = dir / "f";
  CHECK_EQ(CHECK_THROWS(Error, write_boxes({&path, 1}, {&box, 1}, {}, io::system_file_ops())).tensor(), "t");
  box.file = 1;
  CHECK_THROWS(Error, write_boxes({&path, 1}, {&box, 1}, {}, io::system_file_ops()));
}

TEST(boxes_are_read_into_any_memory) {
  const TempDir dir;
  std::mt19937 random(8);
  for (const Numbers& shape : kShapes) {
    const std::string tensor = pattern(4 * product(shape), 9);
    Writer writer;
    writer.add("t", DType::kF32, shape, as_bytes(tensor));
    writer.write_file(dir / "f.safetensors", with_checksums());
    for (const Verify verify : {Verify::kOff, Verify::kLazy}) {
      ReadOptions options;
      options.verify = verify;
      const Reader reader = Reader::open(dir / "f.safetensors", options);
      for (const TensorBox& box : random_boxes(4, shape, random)) {
        // Column-major, so that it is one run of memory only by chance.
        std::string out(4 * product(box.size), '\0');
        std::vector<std::int64_t> strides;
        std::int64_t stride = 4;
        for (const std::uint64_t size : box.size) {
          strides.push_back(stride);
          stride *= static_cast<std::int64_t>(size);
        }
        const WantedBox wanted{&reader, 0, box, reinterpret_cast<std::byte*>(out.data()), strides};
        read_boxes({&wanted, 1}, 2, {}, io::system_file_ops());
        std::string row(out.size(), '\0');
        for_each_element({4, box.size, Numbers(box.size.size(), 0), box.size}, [&](std::uint64_t, std::uint64_t i) {
          std::uint64_t rest = i, at = 0;
          for (std::size_t d = box.size.size(); d-- > 0;) {
            at += rest % box.size[d] * static_cast<std::uint64_t>(strides[d]);
            rest /= box.size[d];
          }
          std::memcpy(&row[4 * i], &out[at], 4);
        });
        CHECK(row == bytes_of(box, tensor));
      }
    }
  }
}

TEST(tensors_are_put_together) {
  const TempDir dir;
  std::mt19937 random(10);
  for (const Numbers& shape : kShapes) {
    const std::string tensor = pattern(2 * product(shape), 11);
    std::vector<BoxedTensors::Part> parts;
    for (const TensorBox& box : random_boxes(2, shape, random)) {
      const std::string name = "p" + std::to_string(parts.size()) + ".safetensors";
      const std::string bytes = bytes_of(box, tensor);
      Writer writer;
      writer.add("t", DType::kI16, box.size, as_bytes(bytes));
      writer.write_file(dir / name, with_checksums());
      parts.push_back({Reader::open(dir / name), 0, box.begin, box.size});
    }
    BoxedTensors boxed("all", {});
    boxed.add("t", DType::kI16, shape, 2, shape, parts);
    const Reader reader = std::move(boxed).finish();
    std::string out(tensor.size(), '\0');
    reader.read(0, std::as_writable_bytes(std::span(out)));
    CHECK(out == tensor);
    for (int i = 0; i < 50 && !tensor.empty(); ++i) {
      const std::uint64_t begin = random() % tensor.size();
      std::string part(random() % (tensor.size() - begin + 1), '\0');
      reader.read_range(0, begin, std::as_writable_bytes(std::span(part)));
      CHECK(part == tensor.substr(begin, part.size()));
    }
    CHECK_EQ(reader.verify_all(), parts.size());
    if (tensor.empty()) continue;
    // What lacks a part, or has one twice, is refused.
    const auto largest = std::max_element(
        parts.begin(), parts.end(), [](const auto& a, const auto& b) { return product(a.size) < product(b.size); });
    auto twice = parts;
    twice.push_back(*largest);
    BoxedTensors wrong("all", {});
    CHECK(CHECK_THROWS(Error, wrong.add("t", DType::kI16, shape, 2, shape, twice)).code() == ErrorCode::kCorrupt);
    parts.erase(largest);
    CHECK(CHECK_THROWS(Error, wrong.add("t", DType::kI16, shape, 2, shape, parts)).code() == ErrorCode::kCorrupt);
  }
}
