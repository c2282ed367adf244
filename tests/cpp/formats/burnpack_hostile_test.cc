// Files that somebody made to hurt the reader, and files that are odd but fine.

#include <string>

#include "burnpack_files.h"
#include "check.h"
#include "counted_memory.h"
#include "weightstore/error.h"

using namespace weightstore;
using namespace burnpack_files;

namespace {

const std::string kTensors = "6774656e736f7273";
const std::string kMetadata = "686d65746164617461";
const std::string kScalars = "677363616c617273";
const std::string kDType = "656474797065";
const std::string kF32 = "63463332";
const std::string kShape = "657368617065";
const std::string kOffsets = "6c646174615f6f666673657473";
const std::string kParamId = "68706172616d5f6964";

// A file whose metadata is these digits, with 16 bytes of data.
std::string file_of(const std::string& digits) { return aligned(unhex(digits), std::string(16, 'd')); }

TensorTable read_hex(const std::string& digits) { return read(file_of(digits)); }

Error refused(std::string_view file, const Limits& limits = {}) {
  const Error thrown = CHECK_THROWS(Error, read(file, limits));
  CHECK(thrown.format() == Format::kBurnpack);
  return thrown;
}

ErrorCode refusal(const std::string& digits) { return refused(file_of(digits)).code(); }

// A file of one tensor 'w' with these fields.
std::string one(unsigned fields, const std::string& digits) {
  return "a1" + kTensors + "a16177" + hex(std::string(1, static_cast<char>(0xA0 + fields))) + digits;
}

// The most memory that opening this file took, as a multiple of its metadata.
double cost(const std::string& metadata, ErrorCode* code = nullptr) {
  const std::string file = aligned(metadata, "");
  const auto source = memory_source(bytes_of(file));
  constexpr std::size_t kConstant = 2 << 20;
  const std::size_t used = counted_memory::peak_of([&] {
    try {
      burnpack::read_table(source);
      if (code != nullptr) check::fail(__FILE__, __LINE__, "the file was accepted");
    } catch (const Error& thrown) {
      if (code == nullptr) throw;
      *code = thrown.code();
    }
  });
  return used <= kConstant ? 0 : static_cast<double>(used - kConstant) / static_cast<double>(metadata.size());
}

std::string map_head(std::uint64_t entries) {
  std::string out;
  CborWriter(out).begin_map(entries);
  return out;
}

std::string text(std::string_view value) {
  std::string out;
  CborWriter(out).write_text(value);
  return out;
}

// Distinct keys of as few bytes as there can be.
std::string short_key(std::size_t i) {
  std::string key;
  for (; i != 0; i /= 128) key.push_back(static_cast<char>(i % 128));
  return key;
}

}  // namespace

TEST(forms_that_burn_accepts) {
  const std::string shape = kShape + "8104";
  const std::string offsets = kOffsets + "820010";
  const auto fine = [](const std::string& digits) {
    const TensorTable table = read_hex(digits);
    CHECK_EQ(table.size(), 1u);
    CHECK(table.dtype(0) == DType::kF32);
    CHECK(table.shape(0) == Shape{4});
    CHECK_EQ(table.nbytes(0), 16u);
    return table;
  };
  fine(one(3, kDType + kF32 + shape + offsets));
  fine(one(3, offsets + shape + kDType + kF32));                                          // any order
  fine(one(3, kDType + kF32 + kShape + "9f1804ff" + kOffsets + "9f1a00000000190010ff"));  // indefinite, long
  fine("bf" + kTensors + "bf7f6177ffbf" + kDType + kF32 + shape + offsets + "ffffff");
  fine("d9d9f7a1" + kTensors + "a1c16177a3" + kDType + "c1" + kF32 + shape + offsets);  // tags
  fine(one(4, kDType + kF32 + shape + "6178a2f6f6f6f6" + offsets));                     // unknown field
  fine("a2617882f6f6" + one(3, kDType + kF32 + shape + offsets).substr(2));             // in the root, too
  CHECK(!fine(one(4, kDType + kF32 + shape + offsets + kParamId + "f6"))[0].param_id);
  CHECK_EQ(fine(one(4, kDType + kF32 + shape + offsets + kParamId + "1bffffffffffffffff"))[0].param_id.value(),
           UINT64_MAX);
  CHECK_EQ(read(head(unhex("a1" + kTensors + "a0"), 0) + std::string(236, '\0')).size(), 0u);  // version 0
}

TEST(forms_that_are_refused) {
  const std::string dtype = kDType + kF32;
  const std::string shape = kShape + "8104";
  const std::string offsets = kOffsets + "820010";
  for (const std::string& digits : {
           std::string(""),
           std::string("80"),
           std::string("a0"),
           std::string("a1") + kMetadata + "a0",
           "a1" + kTensors + "f6",
           "a1" + kTensors + "a000",  // bytes behind the item
           "a2" + kTensors + "a0" + kMetadata + "f6",
           "a2" + kTensors + "a0" + kMetadata + "a1617801",   // a number as value
           "a2" + kTensors + "a0" + kMetadata + "a10061 78",  // a number as key
           "a2" + kTensors + "a0" + kTensors + "a0",          // fields twice
           "a3" + kTensors + "a0617800617800",
           "a2" + kTensors + "a0" + kMetadata + "a26178617961786179",
           "a2" + kTensors + "a0" + kScalars + "a26178a163496e74006178a163496e7400",
           one(4, dtype + dtype + shape + offsets),
           one(5, dtype + shape + offsets + "617800617800"),
           "a1" + kTensors + "a26177a3" + dtype + shape + offsets + "6177a3" + dtype + shape + offsets,
           one(2, dtype + shape),  // fields missing
           one(2, dtype + offsets),
           one(2, shape + offsets),
           one(3, dtype + kShape + "8120" + offsets),      // negative
           one(3, dtype + kShape + "4104" + offsets),      // bytes
           one(3, dtype + kShape + "81f94400" + offsets),  // float
           one(3, dtype + shape + kOffsets + "8110"),      // not two
           one(3, dtype + shape + kOffsets + "83001010"),
           one(3, dtype + shape + kOffsets + "821000"),  // backwards
           one(3, dtype + shape + kOffsets + "82000f"),  // not the shape's
           one(3, dtype + kShape + "8105" + offsets),
           one(3, dtype + kShape + "821b80000000000000001b8000000000000000" + offsets),
           one(3, dtype + shape + kOffsets + "821bfffffffffffffff01bfffffffffffffffe"),
           one(4, dtype + shape + offsets + kParamId + "20"),
           one(3, kDType + "a0" + shape + offsets),
           one(3, kDType + "a264426f6f6c664e617469766564426f6f6c664e6174697665" + shape + offsets),
           "a2" + kTensors + "a0" + kScalars + "a16178a0",
           "a2" + kTensors + "a0" + kScalars + "a1617801",
           "a2" + kTensors + "a0" + kScalars + "a16178a263496e74006455496e7400",
           "a2" + kTensors + "a0" + kScalars + "a16178a16455496e7420",    // UInt -1
           "a2" + kTensors + "a0" + kScalars + "a16178a165466c6f617401",  // Float 1
       }) {
    if (refusal(digits) != ErrorCode::kCorrupt) check::fail(__FILE__, __LINE__, "refused otherwise: " + digits);
  }
  CHECK(refusal(one(3, kDType + "63463939" + shape + offsets)) == ErrorCode::kUnsupported);
  CHECK(refusal(one(3, kDType + "64424f4f4c" + shape + offsets)) == ErrorCode::kUnsupported);
  CHECK(refusal(one(3, kDType + "a163463332f6" + shape + offsets)) == ErrorCode::kUnsupported);
  CHECK(refusal("a2" + kTensors + "a0" + kScalars + "a16178a1635374726178") == ErrorCode::kUnsupported);
  CHECK(refusal("a2" + kTensors + "a0" + kScalars + "a16178a163496e741b8000000000000000") == ErrorCode::kUnsupported);
}

TEST(errors_say_where) {
  const Error thrown = refused(file_of(one(3, kDType + kF32 + kShape + "8105" + kOffsets + "820010")));
  CHECK_EQ(thrown.tensor(), "w");
  CHECK_EQ(thrown.offset().value(), 22u);
  CHECK_EQ(thrown.message(), "data_offsets span 16 bytes, but shape and data type take 20");
}

TEST(duplicates_inside_ignored_fields_are_ignored) {
  CHECK_EQ(read_hex("a2" + kTensors + "a06178a2617900617900").size(), 0u);
}

TEST(ranges_do_not_meet) {
  const auto file = [](std::uint64_t begin, std::uint64_t end) {
    return aligned(index_of({entry("a", "U8", {8}, 4, 12), entry("b", "U8", {end - begin}, begin, end)}),
                   std::string(32, 'd'));
  };
  CHECK_EQ(read(file(0, 4)).size(), 2u);
  CHECK_EQ(read(file(12, 32)).size(), 2u);
  CHECK_EQ(read(file(8, 8)).size(), 2u);  // no bytes, so none in common
  CHECK(refused(file(0, 5)).code() == ErrorCode::kCorrupt);
  CHECK(refused(file(11, 12)).code() == ErrorCode::kCorrupt);
  CHECK(refused(file(0, 32)).code() == ErrorCode::kCorrupt);
  CHECK(refused(file(4, 12)).code() == ErrorCode::kCorrupt);
  const Error outside = refused(file(16, 33));
  CHECK(outside.code() == ErrorCode::kCorrupt);
  CHECK_EQ(outside.tensor(), "b");
}

TEST(header_is_checked) {
  const std::string good = file_of("a1" + kTensors + "a0");
  CHECK_EQ(read(good).size(), 0u);
  std::string file = good;
  file[0] = 'B';
  CHECK(refused(file).code() == ErrorCode::kCorrupt);
  file = good;
  file[4] = 2;
  CHECK(refused(file).code() == ErrorCode::kUnsupported);
  file = good;
  file[7] = 2;
  CHECK(refused(file).code() == ErrorCode::kCorrupt);
  file[9] = '\xff';
  CHECK(refused(file).code() == ErrorCode::kLimit);
}

TEST(limits_are_kept) {
  const std::string index = index_of({entry("a", "U8", {4, 2}, 0, 8), entry("b", "U8", {1, 1}, 8, 9)});
  const std::string file = aligned(index, std::string(9, 'd'));
  const auto with = [](std::uint64_t Limits::* limit, std::uint64_t value) {
    Limits limits;
    limits.*limit = value;
    return limits;
  };
  const std::pair<std::uint64_t Limits::*, std::uint64_t> exact[] = {{&Limits::burnpack_tensors, 2},
                                                                     {&Limits::burnpack_tensor_bytes, 8},
                                                                     {&Limits::burnpack_metadata_bytes, index.size()},
                                                                     {&Limits::burnpack_file_bytes, file.size()},
                                                                     {&Limits::rank, 2}};
  for (const auto& [limit, value] : exact) {
    CHECK_EQ(read(file, with(limit, value)).size(), 2u);
    CHECK(refused(file, with(limit, value - 1)).code() == ErrorCode::kLimit);
  }
}

TEST(nesting_is_capped) {
  std::string deep;
  for (int i = 0; i < 126; ++i) deep += "81";
  CHECK_EQ(read_hex("a2" + kTensors + "a06178" + deep + "80").size(), 0u);
  CHECK(refusal("a2" + kTensors + "a06178" + deep + "8180") == ErrorCode::kLimit);
}

TEST(unknown_fields_are_counted) {
  std::string metadata = map_head(258) + unhex(kTensors + "a0");
  for (int i = 0; i < 257; ++i) metadata += text(std::to_string(i)) + unhex("f6");
  CHECK(refused(aligned(metadata, "")).code() == ErrorCode::kLimit);
}

// No file makes the reader take more than eight times its metadata and a constant.

TEST(memory_for_many_tensors) {
  std::vector<std::string> entries;
  for (std::size_t i = 0; i < 100'000; ++i) entries.push_back(entry(short_key(i), "U8", {0}, 0, 0));
  CHECK(cost(index_of(entries)) <= 8);
}

TEST(memory_for_many_schemes) {
  std::string metadata = unhex("a1" + kTensors) + map_head(50'000);
  for (std::size_t i = 0; i < 50'000; ++i) {
    metadata += text(short_key(i)) + unhex("a3" + kDType + "a16651466c6f6174a5");
    metadata += text("value") + text("Q8S") + text("store") + text("Native") + text("mode") + text("Symmetric");
    metadata += text("tensor") + unhex("f6");
    metadata += text("block") + unhex("a2") + text("dtype") + text("F32") + text("size") + unhex("a2");
    metadata += text("storage") + unhex(i % 2 == 0 ? "850201010101" : "850301010101") + text("len") + unhex("01");
    metadata += unhex(kShape + "8100" + kOffsets + "820000");
  }
  CHECK(cost(metadata) <= 8);
}

TEST(memory_for_short_metadata) {
  const std::size_t count = 2'000'000;
  std::string metadata = unhex("a2" + kTensors + "a0" + kMetadata) + map_head(count);
  for (std::size_t i = 0; i < count; ++i) metadata += text(short_key(i)) + text("");
  CHECK(cost(metadata) <= 8);

  ErrorCode code;
  metadata = unhex("a2" + kTensors + "a0" + kMetadata) + map_head(count) + std::string(2 * count, '\x60');
  CHECK(cost(metadata, &code) <= 8);
  CHECK(code == ErrorCode::kCorrupt);
  metadata = unhex("a2" + kTensors + "a0" + kMetadata) + map_head(count);
  for (std::size_t i = 0; i < count; ++i) metadata += "\x61x\x60";
  CHECK(cost(metadata, &code) <= 8);
  CHECK(code == ErrorCode::kCorrupt);
}

TEST(memory_for_small_scalars) {
  const std::size_t count = 1'000'000;
  std::string metadata = unhex("a2" + kTensors + "a0" + kScalars) + map_head(count);
  for (std::size_t i = 0; i < count; ++i) metadata += text(short_key(i)) + unhex("a163496e7400");
  CHECK(cost(metadata) <= 8);
}

TEST(memory_for_long_shapes) {
  std::vector<std::string> entries;
  for (std::size_t i = 0; i < 50; ++i) entries.push_back(entry(short_key(i), "U8", Shape(65'536, 0), 0, 0));
  CHECK(cost(index_of(entries)) <= 8);
  ErrorCode code;
  CHECK(cost(index_of({entry("a", "U8", Shape(4'000'000, 0), 0, 0)}), &code) <= 8);
  CHECK(code == ErrorCode::kLimit);
}

TEST(memory_for_long_text) {
  std::string pieces = unhex("a2" + kTensors + "a0" + kMetadata + "a161787f");
  for (int i = 0; i < 2'000'000; ++i) pieces += "\x61x";
  CHECK(cost(pieces + '\xff') <= 8);
  CHECK(cost(index_of({entry(std::string(4'000'000, 'n'), "U8", {0}, 0, 0)})) <= 8);
}

TEST(memory_for_ignored_fields) {
  CHECK(cost(unhex("a2" + kTensors + "a061789b00000000003d0900") + std::string(4'000'000, '\x00')) <= 1);
}

RUN_TESTS()
