// Whether boxes make up a tensor, and what a metadata entry says about chunks.

#include "file/boxes/box_cover.h"

#include <random>

#include "check.h"
#include "codec/json.h"
#include "file/boxes/box.h"
#include "file/boxes/chunk_entry.h"
#include "weightstore/error.h"

using namespace weightstore;

namespace {

using Boxes = std::vector<BoxPlace>;

bool covers(const Shape& shape, const Boxes& boxes) { return !why_no_cover(shape, boxes).has_value(); }

// Cuts a box into two at random, again and again. The parts form no grid.
Boxes random_cuts(const Shape& shape, std::size_t count, std::mt19937& random) {
  Boxes boxes = {{Shape(shape.size(), 0), shape}};
  while (boxes.size() < count) {
    BoxPlace& box = boxes[random() % boxes.size()];
    const std::size_t axis = random() % shape.size();
    const std::uint64_t first = random() % (box.size[axis] + 1);
    BoxPlace rest = box;
    rest.begin[axis] += first;
    rest.size[axis] -= first;
    box.size[axis] = first;
    boxes.push_back(std::move(rest));
  }
  return boxes;
}

// By looking at every element.
bool covers_slowly(const Shape& shape, const Boxes& boxes) {
  for (std::uint64_t row = 0; row < shape[0]; ++row) {
    for (std::uint64_t column = 0; column < shape[1]; ++column) {
      int found = 0;
      for (const BoxPlace& box : boxes) {
        found += row >= box.begin[0] && row < box.begin[0] + box.size[0] && column >= box.begin[1] &&
                 column < box.begin[1] + box.size[1];
      }
      if (found != 1) return false;
    }
  }
  return true;
}

TensorTable table_of(const std::vector<std::string>& names) {
  TensorTable table;
  for (const std::string& name : names) table.add({name, DType::kU8, Shape{0}, 0, 0, 0, std::nullopt, nullptr});
  table.finish();
  return table;
}

}  // namespace

TEST(cuts_and_changed_cuts) {
  std::mt19937 random(7);
  const Shape shape = {9, 11};
  int whole = 0;
  for (int i = 0; i < 2000; ++i) {
    Boxes boxes = random_cuts(shape, 1 + random() % 12, random);
    CHECK(covers(shape, boxes));
    BoxPlace& changed = boxes[random() % boxes.size()];
    const std::size_t axis = random() % 2;
    changed.begin[axis] = random() % shape[axis];
    changed.size[axis] = random() % (shape[axis] - changed.begin[axis] + 1);
    const bool expected = covers_slowly(shape, boxes);
    CHECK_EQ(covers(shape, boxes), expected);
    whole += expected;
  }
  CHECK(whole > 10 && whole < 1000);
}

TEST(scalars_and_empty_tensors) {
  CHECK(covers({}, {{{}, {}}}));
  CHECK(!covers({}, {}));
  CHECK(!covers({}, {{{}, {}}, {{}, {}}}));
  CHECK(covers({0, 4}, {}));
  CHECK(covers({0, 4}, {{{0, 0}, {0, 4}}, {{0, 0}, {0, 4}}}));
}

// A thousand ranks, by columns: n log n steps, not n * n for each of many tensors.
TEST(many_columns) {
  Boxes boxes;
  for (std::uint64_t i = 0; i < 20'000; ++i) boxes.push_back({{0, i}, {8, 1}});
  CHECK(covers({8, 20'000}, boxes));
  boxes[5].begin[1] = 6;
  CHECK_EQ(*why_no_cover(Shape{8, 20'000}, boxes), "two chunks of the tensor overlap");
}

TEST(many_that_form_no_grid_are_refused) {
  std::mt19937 random(3);
  const Boxes boxes = random_cuts({1u << 20, 1u << 20}, 12'000, random);
  CHECK(why_no_cover(Shape{1u << 20, 1u << 20}, boxes)->find("form no grid") != std::string::npos);
}

TEST(boxes_of_packed_types) {
  const TensorBox box = box_of(DType::kF4, Shape{4, 8}, Shape{0, 4}, Shape{4, 4});
  CHECK_EQ(box.item_bytes, 1u);
  CHECK(box.shape == (Shape{4, 4}) && box.begin == (Shape{0, 2}) && box.size == (Shape{4, 2}));
  const Error error = CHECK_THROWS(Error, box_of(DType::kF4, Shape{4, 8}, Shape{0, 1}, Shape{4, 4}));
  CHECK(error.code() == ErrorCode::kInvalidArgument);
}

TEST(an_entry_names_its_chunks) {
  ChunkDescriptions described;
  described.add("w", {4, 6}, {0, 3});
  described.add("w", {4, 6}, {0, 0});
  const Value entry = Value::Map{{"chunked", described.value()}};
  CHECK_EQ(json_encode(described.value()), R"({"w":{"shape":[4,6],"chunks":[[0,0],[0,3]]}})");
  const TensorTable table = table_of({chunk_key("w", {0, 0}), "w/0,3", "w/0,4", "w/0,3,", "w/0,", "v/0,3", "w"});
  const auto chunks = find_tensor_chunks(entry, table);
  CHECK_EQ(chunks.size(), 2u);
  for (const TensorChunk& chunk : chunks) {
    CHECK_EQ(chunk.name, "w");
    CHECK_EQ(table.name(chunk.tensor), chunk_key("w", chunk.begin));
  }
}

TEST(damaged_entries) {
  for (const char* text :
       {R"({"chunked":1})", R"({"chunked":{"w":{}}})", R"({"chunked":{"w":{"shape":[-1],"chunks":[]}}})",
        R"({"chunked":{"w":{"shape":[1],"chunks":[3]}}})"}) {
    const Value entry = json_decode(text);
    CHECK(CHECK_THROWS(Error, find_tensor_chunks(entry, table_of({"w/0"}))).code() == ErrorCode::kCorrupt);
  }
}
