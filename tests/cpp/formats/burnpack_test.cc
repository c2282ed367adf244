#include "weightstore/burnpack.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "burnpack_files.h"
#include "burnpack_golden.h"
#include "check.h"
#include "formats/burnpack/quant_cbor.h"
#include "sha256.h"
#include "weightstore/error.h"
#include "weightstore/writer.h"

using namespace weightstore;
using namespace burnpack_files;

namespace {

std::uint64_t end_of(const TensorTable& table, std::size_t i) { return table.begin(i) + table.nbytes(i); }

// The contents of a file, to write it again.
Writer contents_of(const TensorTable& table) {
  Writer writer;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const TensorInfo info = table[i];
    writer.add({info.name, info.dtype, info.shape, source_bytes(table.sources()[0], info.begin, info.nbytes()),
                info.param_id, info.quant});
  }
  if (table.has_metadata()) writer.set_metadata(table.metadata());
  for (std::size_t i = 0; i < table.scalars().size(); ++i) {
    writer.set_scalar(table.scalars().name(i), table.scalars().value(i));
  }
  return writer;
}

std::string test_file(const char* name) {
  const char* directory = std::getenv("WEIGHTSTORE_TESTDATA");
  if (directory == nullptr) return {};
  std::ifstream file(std::string(directory) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

float float_at(std::string_view file, std::uint64_t offset) {
  float value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

}  // namespace

TEST(golden_files_are_written) {
  for (const Golden& golden : golden_files()) {
    const std::string file = write(golden.contents, golden.release);
    const std::string metadata = unhex(golden.metadata);
    CHECK_EQ(hex(file.substr(10, metadata.size())), golden.metadata);
    CHECK_EQ(file.substr(0, 10 + metadata.size()), head(metadata));
    CHECK_EQ(file.size(), golden.file_size);
    CHECK_EQ(sha256_hex(file), golden.sha256);
    CHECK_EQ(burnpack::plan(golden.contents, golden.release).header.size(), 256u);
  }
}

TEST(golden_files_are_read_and_written_again) {
  for (const Golden& golden : golden_files()) {
    const std::string file = write(golden.contents, golden.release);
    const TensorTable table = read(file);
    CHECK_EQ(table.size(), golden.contents.tensors().size());
    CHECK_EQ(table.dialect(), golden.release == BurnRelease::k020 ? "0.20" : "0.21");
    for (const NewTensor& tensor : golden.contents.tensors()) {
      const TensorInfo info = table[table.at(tensor.name)];
      CHECK(info.dtype == tensor.dtype);
      CHECK(info.shape == tensor.shape);
      CHECK(info.param_id == tensor.param_id);
      CHECK_EQ(info.begin % 256, 0u);
    }
    CHECK_EQ(hex(write(contents_of(table), golden.release)), hex(file));
  }
}

TEST(golden_contents) {
  const std::vector<Golden> files = golden_files();
  const TensorTable users = read(write(files[6].contents));
  CHECK(users.has_metadata());
  CHECK_EQ(users.metadata().size(), 3u);
  CHECK_EQ(users.metadata().find("version").value(), "0.20.0");
  const TensorTable scalars = read(write(files[7].contents));
  CHECK(!scalars.has_metadata());
  CHECK_EQ(scalars.scalars().size(), 3u);
  CHECK(*scalars.scalars().find("flag") == Scalar(true));
  CHECK(*scalars.scalars().find("offset") == Scalar(std::int64_t{-3}));
  CHECK(*scalars.scalars().find("step") == Scalar(std::uint64_t{42}));
}

// Cut anywhere, a file is refused: also where what is left has the length of a file without alignment.
TEST(truncation_is_found_at_every_byte) {
  for (const Golden& golden : golden_files()) {
    const std::string file = write(golden.contents, golden.release);
    for (std::size_t size = 0; size < file.size(); ++size) {
      // Memory of exactly this size, for sanitizers.
      const std::vector<char> cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
      const Error refused = CHECK_THROWS(Error, read({cut.data(), cut.size()}));
      CHECK(refused.code() == ErrorCode::kCorrupt);
      CHECK(refused.format() == Format::kBurnpack);
    }
  }
}

TEST(trailing_bytes_are_accepted) {
  for (const Golden& golden : golden_files()) {
    const std::string file = write(golden.contents, golden.release) + std::string(300, 'x');
    CHECK_EQ(read(file).size(), golden.contents.tensors().size());
  }
}

TEST(real_file) {
  const std::string file = test_file("fixtures/burnpack/mnist.bpk");
  if (file.empty()) {
    std::printf("skipped real_file: WEIGHTSTORE_TESTDATA has no fixtures/burnpack/mnist.bpk\n");
    return;
  }
  CHECK_EQ(sha256_hex(file), "b63e660152b3865b1b630c97af6df1fcbc04206648d3a03b3636fcc795ecc472");
  struct Expected {
    const char* name;
    Shape shape;
    std::uint64_t begin, end, param_id;
  };
  const Expected expected[] = {
      {"conv1.conv.bias", {64}, 2304, 2560, 9505838338724798577u},
      {"conv1.conv.weight", {64, 1, 3, 3}, 0, 2304, 10777079075451239370u},
      {"conv1.norm.beta", {64}, 2816, 3072, 2754571703519099271u},
      {"conv1.norm.gamma", {64}, 2560, 2816, 3366457416367518553u},
      {"conv1.norm.running_mean", {64}, 3072, 3328, 14629392822177388866u},
      {"conv1.norm.running_var", {64}, 3328, 3584, 10589899029590977807u},
      {"conv2.conv.bias", {64}, 151040, 151296, 15610936121904110070u},
      {"conv2.conv.weight", {64, 64, 3, 3}, 3584, 151040, 11182327050026330461u},
      {"conv2.norm.beta", {64}, 151552, 151808, 425276833309772702u},
      {"conv2.norm.gamma", {64}, 151296, 151552, 5162429217262430322u},
      {"conv2.norm.running_mean", {64}, 151808, 152064, 7653953462918125781u},
      {"conv2.norm.running_var", {64}, 152064, 152320, 17310467163264002046u},
      {"fc1.bias", {128}, 971520, 972032, 15905375811386401305u},
      {"fc1.weight", {1600, 128}, 152320, 971520, 1730029982897944783u},
      {"fc2.bias", {128}, 1037568, 1038080, 10157234230921783009u},
      {"fc2.weight", {128, 128}, 972032, 1037568, 6156368336105823443u},
      {"fc3.bias", {10}, 1043200, 1043240, 7846584638995852899u},
      {"fc3.weight", {128, 10}, 1038080, 1043200, 9562590261885004638u},
  };
  const TensorTable table = read(file);
  CHECK_EQ(table.size(), std::size(expected));
  CHECK_EQ(table.dialect(), "0.20");
  CHECK(!table.has_metadata());
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    const TensorInfo info = table[table.by_name()[i]];
    CHECK_EQ(info.name, expected[i].name);
    CHECK(info.dtype == DType::kF32);
    CHECK(info.shape == expected[i].shape);
    CHECK_EQ(info.begin, 1536 + expected[i].begin);
    CHECK_EQ(info.end, 1536 + expected[i].end);
    CHECK_EQ(info.param_id.value(), expected[i].param_id);
  }
  CHECK_EQ(float_at(file, table.begin(table.at("conv1.conv.weight"))), -0.14136985f);
  CHECK_EQ(float_at(file, table.begin(table.at("fc3.bias")) + 4 * 9), -0.79151887f);
  CHECK(write(contents_of(table)) == file);
}

TEST(packed_files_of_019) {
  // Index sorted by name, data as added, no alignment.
  const std::string index = index_of({entry("bias", "F32", {2}, 16, 24), entry("weight", "F32", {4}, 0, 16)});
  const std::string data = unhex("0000803f000000400000404000008040 0000a0400000c040");
  const std::string file = head(index) + data;
  const TensorTable table = read(file);
  CHECK_EQ(table.dialect(), "0.19");
  CHECK_EQ(table.name(0), "weight");
  CHECK_EQ(table.begin(0), 10 + index.size());
  CHECK_EQ(end_of(table, 1), file.size());
  CHECK_EQ(float_at(file, table.begin(1)), 5.0f);
}

TEST(packed_files_of_019_that_hold_zeros_say_so) {
  std::string index;
  CborWriter writer(index);
  writer.begin_map(2);
  writer.write_text("tensors");
  writer.begin_map(1);
  index += entry("w", "F32", {4}, 0, 16);
  writer.write_text("metadata");
  writer.begin_map(1);
  writer.write_text("version");
  std::string old = index;
  CborWriter(old).write_text("0.19.1");
  CborWriter(index).write_text("0.20.0");
  const std::string zeros(16, '\0');
  CHECK_EQ(read(head(old) + zeros).dialect(), "0.19");
  CHECK(CHECK_THROWS(Error, read(head(index) + zeros)).code() == ErrorCode::kCorrupt);
}

// 0.19 gives all parts of a tuple one name. The index keeps the last part, and the bytes of the others stay in the
// file.
TEST(packed_files_of_019_may_have_holes) {
  const auto index = [](std::uint64_t begin, std::string_view version) {
    std::string out;
    CborWriter writer(out);
    writer.begin_map(2);
    writer.write_text("tensors");
    writer.begin_map(1);
    out += entry("w", "F32", {2}, begin, begin + 8);
    writer.write_text("metadata");
    writer.begin_map(1);
    writer.write_text("version");
    writer.write_text(version);
    return out;
  };
  const std::string value = unhex("0000803f00000040");
  for (const auto& [begin, version] : {std::pair(256, "0.19.1"), std::pair(24, "0.19.1"), std::pair(24, "mine")}) {
    const std::string file = head(index(begin, version)) + std::string(begin, '\0') + value;
    const TensorTable table = read(file);
    CHECK_EQ(table.dialect(), "0.19");
    CHECK_EQ(float_at(file, table.begin(0)), 1.0f);
  }
  // Only the end of an aligned file is missing here.
  const std::string cut = head(index(256, "mine")) + std::string(256, '\0') + value;
  CHECK(CHECK_THROWS(Error, read(cut)).code() == ErrorCode::kCorrupt);
}

TEST(empty_metadata_is_left_out) {
  Writer writer;
  writer.set_metadata(TextMap());
  CHECK_EQ(write(writer), write(Writer()));
}

TEST(contents_that_are_refused) {
  const auto refusal = [](const Writer& writer) {
    const Error refused = CHECK_THROWS(Error, burnpack::plan(writer, BurnRelease::k020));
    CHECK(refused.format() == Format::kBurnpack);
    return refused;
  };
  const auto one = [](std::string name, Shape shape, std::uint64_t bytes) {
    Writer writer;
    add(writer, std::move(name), DType::kU8, std::move(shape), deferred_bytes(bytes, {}));
    return writer;
  };
  Writer twice = one("a", {1}, 1);
  add(twice, "b", DType::kU8, {1}, octets({1}));
  add(twice, "a", DType::kU8, {1}, octets({1}));
  CHECK(refusal(twice).code() == ErrorCode::kInvalidArgument);
  CHECK_EQ(refusal(twice).tensor(), "a");
  CHECK(refusal(one("a", {2}, 1)).code() == ErrorCode::kInvalidArgument);
  CHECK(refusal(one("a", {UINT64_MAX, 2}, 1)).code() == ErrorCode::kInvalidArgument);
  CHECK(refusal(one("\xff", {1}, 1)).code() == ErrorCode::kInvalidArgument);
  Writer text = one("a", {1}, 1);
  text.set_metadata("key", "\xff");
  CHECK(refusal(text).code() == ErrorCode::kInvalidArgument);
  Writer scalar = one("a", {1}, 1);
  scalar.set_scalar("\xff", true);
  CHECK(refusal(scalar).code() == ErrorCode::kInvalidArgument);
}

TEST(what_burn_could_not_read_back_is_refused) {
  const auto refusal = [](const Writer& writer) {
    return CHECK_THROWS(Error, burnpack::plan(writer, BurnRelease::k020)).code();
  };
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  Writer large;
  add(large, "a", DType::kU8, {10 * kGiB}, deferred_bytes(10 * kGiB, {}));
  burnpack::plan(large, BurnRelease::k020);
  for (const char* name : {"b", "c", "d", "e", "f", "g", "h", "i"}) {
    add(large, name, DType::kU8, {10 * kGiB}, deferred_bytes(10 * kGiB, {}));
  }
  burnpack::plan(large, BurnRelease::k020);
  add(large, "j", DType::kU8, {10 * kGiB}, deferred_bytes(10 * kGiB, {}));
  CHECK(refusal(large) == ErrorCode::kLimit);
  CHECK(CHECK_THROWS(Error, burnpack::plan(large, BurnRelease::k022)).code() == ErrorCode::kLimit);
  burnpack::plan(large, BurnRelease::k023);
  Writer larger;
  add(larger, "a", DType::kU8, {10 * kGiB + 1}, deferred_bytes(10 * kGiB + 1, {}));
  CHECK(refusal(larger) == ErrorCode::kLimit);

  Writer many;
  const auto nothing = octets({});
  for (int i = 0; i < 100'000; ++i) add(many, std::to_string(i), DType::kU8, {0}, nothing);
  burnpack::plan(many, BurnRelease::k020);
  add(many, "one more", DType::kU8, {0}, nothing);
  CHECK(refusal(many) == ErrorCode::kLimit);

  Writer wordy;
  wordy.set_metadata("key", std::string(100 << 20, 'x'));
  CHECK(refusal(wordy) == ErrorCode::kLimit);
}

RUN_TESTS()
