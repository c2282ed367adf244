#include "weightstore/quant_scheme.h"

#include <string>

#include "check.h"
#include "formats/burnpack/quant_cbor.h"
#include "hex.h"
#include "weightstore/error.h"

using namespace weightstore;

namespace {

// Golden bytes are {"QFloat": scheme}; this is what stands before the scheme.
const std::string kPrefix = "a16651466c6f6174";
const std::string kValueQ8F = "6576616c756563513846";
const std::string kValueQ8S = "6576616c756563513853";
const std::string kParamF32 = "65706172616d63463332";
const std::string kStorePackedU32 = "6573746f7265a1695061636b656455333200";
const std::string kStoreNative = "6573746f7265664e6174697665";
const std::string kStoreU32 = "6573746f726563553332";
const std::string kLevelTensor = "656c6576656c6654656e736f72";
const std::string kBlockSize32 = "a26773746f7261676585182001010101636c656e01";
const std::string kLevelBlock32 = "656c6576656ca165426c6f636b" + kBlockSize32;
const std::string kSymmetric = "646d6f64656953796d6d6574726963";
const std::string kLookup = "646d6f6465664c6f6f6b7570";
const std::string kTensorNull = "6674656e736f72f6";
const std::string kTensorF32 = "6674656e736f7263463332";
const std::string kBlockNull = "65626c6f636bf6";
const std::string kBlock32UE4M3 = "65626c6f636ba26473697a65" + kBlockSize32 + "656474797065655545344d33";

QuantScheme read(const std::string& digits) {
  const std::string bytes = unhex(digits);
  CborCursor cursor(bytes_of(bytes));
  const QuantScheme scheme = burnpack::read_quant_scheme(cursor);
  CHECK(cursor.at_end());
  return scheme;
}

std::string write(const QuantScheme& scheme) {
  std::string out;
  CborWriter writer(out);
  burnpack::write_quant_scheme(writer, scheme);
  return hex(out);
}

ErrorCode refusal(const std::string& digits) { return CHECK_THROWS(Error, read(digits)).code(); }

QuantScheme block_scheme(QuantValue value, QuantStore store, std::vector<std::uint8_t> block,
                         QuantParam scale = QuantParam::kF32) {
  QuantScheme scheme;
  scheme.value = value;
  scheme.store = store;
  scheme.tensor_scale.reset();
  scheme.block_scale = scale;
  scheme.block = std::move(block);
  return scheme;
}

QuantScheme in_022(QuantScheme scheme) { return *as_release(scheme, BurnRelease::k022); }

}  // namespace

TEST(default_of_020) {
  const std::string golden = "a5" + kValueQ8F + kParamF32 + kStorePackedU32 + kLevelTensor + kSymmetric;
  CHECK_EQ(
      kPrefix + golden,
      "a16651466c6f6174a56576616c75656351384665706172616d634633326573746f7265a1695061636b656455333200656c6576656c6654"
      "656e736f72646d6f64656953796d6d6574726963");
  CHECK_EQ(write(QuantScheme()), golden);
  CHECK(read(golden) == QuantScheme());
}

TEST(blocks_of_020) {
  const QuantScheme scheme = block_scheme(QuantValue::kQ8S, QuantStore::kNative, {32});
  const std::string golden = "a5" + kValueQ8S + kParamF32 + kStoreNative + kLevelBlock32 + kSymmetric;
  CHECK_EQ(write(scheme), golden);
  CHECK(read(golden) == scheme);
}

TEST(store_of_019) {
  CHECK(read("a5" + kValueQ8F + kParamF32 + kStoreU32 + kLevelTensor + kSymmetric) == QuantScheme());
}

TEST(default_of_022) {
  const std::string golden = "a5" + kValueQ8F + kStorePackedU32 + kSymmetric + kTensorNull + kBlockNull;
  CHECK_EQ(
      kPrefix + golden,
      "a16651466c6f6174a56576616c7565635138466573746f7265a1695061636b656455333200646d6f64656953796d6d6574726963667465"
      "6e736f72f665626c6f636bf6");
  QuantScheme expected;
  expected.release = BurnRelease::k022;
  expected.tensor_scale.reset();
  CHECK(read(golden) == expected);
  CHECK(in_022(QuantScheme()) == expected);
  CHECK_EQ(write(expected), golden);
}

TEST(two_levels_of_022) {
  const std::string golden = "a5" + kValueQ8S + kStoreNative + kLookup + kTensorF32 + kBlock32UE4M3;
  const QuantScheme scheme = read(golden);
  CHECK(scheme.release == BurnRelease::k022);
  CHECK(scheme.mode == QuantMode::kLookup);
  CHECK(scheme.tensor_scale == QuantParam::kF32);
  CHECK(scheme.block_scale == QuantParam::kUE4M3);
  CHECK(scheme.block == std::vector<std::uint8_t>{32});
  CHECK_EQ(write(scheme), golden);
  CHECK(!as_release(scheme, BurnRelease::k020));
  CHECK_EQ(to_string(scheme), "Q8S UE4M3 Native Block[32] under F32 Tensor Lookup");
}

TEST(fields_in_any_order_and_unknown_ones) {
  CHECK(read("a6" + kSymmetric + kLevelTensor + "617881a2000000 00" + kStorePackedU32 + kParamF32 + kValueQ8F) ==
        QuantScheme());
  CHECK(read("bf" + kValueQ8F + kStorePackedU32 + kSymmetric + "ff") == in_022(QuantScheme()));
}

TEST(what_no_revision_wrote) {
  const std::string tail = kStorePackedU32 + kLevelTensor + kSymmetric;
  CHECK(refusal("a5" + kValueQ8F + kValueQ8F + kStorePackedU32 + kLevelTensor + kSymmetric) == ErrorCode::kCorrupt);
  CHECK(refusal("a4" + kValueQ8F + tail) == ErrorCode::kCorrupt);                           // no param
  CHECK(refusal("a6" + kValueQ8F + kParamF32 + tail + kBlockNull) == ErrorCode::kCorrupt);  // old and new
  CHECK(refusal("a4" + kValueQ8F + kStoreU32 + kSymmetric + kTensorNull) == ErrorCode::kCorrupt);
  CHECK(refusal("a5" + kValueQ8F + kParamF32 + kStorePackedU32 + kLevelTensor + kLookup) == ErrorCode::kUnsupported);
  CHECK(refusal("a56576616c756563513946" + kParamF32 + tail) == ErrorCode::kUnsupported);  // Q9F
  const auto level = [](const std::string& size) {
    return "a5" + kValueQ8F + kParamF32 + kStorePackedU32 + "656c6576656ca165426c6f636b" + size + kSymmetric;
  };
  const std::string storage = "6773746f72616765";
  const std::string len = "636c656e";
  read(level("a2" + storage + "850201010101" + len + "05"));
  CHECK(refusal(level("a2" + storage + "850201010101" + len + "06")) == ErrorCode::kCorrupt);
  CHECK(refusal(level("a2" + storage + "8402010101" + len + "01")) == ErrorCode::kCorrupt);
  CHECK(refusal(level("a2" + storage + "86020101010101" + len + "01")) == ErrorCode::kCorrupt);
  CHECK(refusal(level("a2" + storage + "850001010101" + len + "01")) == ErrorCode::kCorrupt);
  CHECK(refusal(level("a2" + storage + "8519010001010101" + len + "01")) == ErrorCode::kCorrupt);
  CHECK(refusal(level("a1" + storage + "850201010101")) == ErrorCode::kCorrupt);
}

TEST(blocks_of_one_element) {
  // 0.22 leaves out leading ones, which leaves nothing here.
  const std::string golden = "a5" + kValueQ8S + kStoreNative + kSymmetric + kTensorNull +
                             "65626c6f636ba26473697a65"
                             "a26773746f72616765850101010101636c656e0065647479706563463332";
  const QuantScheme scheme = read(golden);
  CHECK(scheme.block == std::vector<std::uint8_t>{1});
  CHECK_EQ(write(scheme), golden);
  CHECK_EQ(payload_bytes(scheme, {2, 3}), 6u + 4 * 6);
}

TEST(between_revisions) {
  QuantScheme half;
  half.tensor_scale = QuantParam::kF16;
  CHECK(in_022(half).tensor_scale == QuantParam::kF16);
  CHECK(as_release(in_022(half), BurnRelease::k020) == half);

  const QuantScheme block = block_scheme(QuantValue::kQ4S, QuantStore::kPackedU32, {1, 1, 4, 32});
  CHECK((in_022(block).block == std::vector<std::uint8_t>{4, 32}));

  QuantScheme packed;
  packed.store = QuantStore::kPackedNative;
  CHECK(as_release(packed, BurnRelease::k022).has_value());

  QuantScheme contradictory = block;
  contradictory.block.clear();
  CHECK(!as_release(contradictory, BurnRelease::k022));
  contradictory = block;
  contradictory.block[0] = 0;
  CHECK(!as_release(contradictory, BurnRelease::k020));
  contradictory = block;
  contradictory.tensor_scale = QuantParam::kF32;
  CHECK(!as_release(contradictory, BurnRelease::k020));
}

// 0.20 and 0.21 take a block as a run of elements, 0.22 and 0.23 as a rectangle.
TEST(releases_that_read_other_numbers_from_blocks) {
  const auto same = [](std::vector<std::uint8_t> block, std::vector<std::uint64_t> shape) {
    const QuantScheme scheme = block_scheme(QuantValue::kQ8S, QuantStore::kNative, std::move(block));
    CHECK(has_same_values(scheme, shape, BurnRelease::k021));
    const bool alike = has_same_values(scheme, shape, BurnRelease::k022);
    CHECK_EQ(has_same_values(in_022(scheme), shape, BurnRelease::k020), alike);
    CHECK(has_same_values(in_022(scheme), shape, BurnRelease::k023));
    return alike;
  };
  CHECK(same({32}, {4, 32}));
  CHECK(same({16}, {4, 32}));
  CHECK(same({2, 32}, {4, 32}));
  CHECK(same({2, 4, 32}, {6, 4, 32}));
  CHECK(same({1, 16}, {4, 32}));
  CHECK(!same({2, 16}, {4, 32}));
  CHECK(!same({3, 32}, {4, 32}));  // the last block is not whole
  CHECK(!same({16}, {4, 24}));
  CHECK(!same({2, 1, 32}, {6, 4, 32}));
}

// 0.22 takes native E4M3, E5M2 and E2M1 as integers.
TEST(releases_that_read_other_numbers_from_codes) {
  for (const QuantValue value : {QuantValue::kE4M3, QuantValue::kE5M2, QuantValue::kE2M1, QuantValue::kQ4S}) {
    QuantScheme scheme = in_022(QuantScheme());
    scheme.value = value;
    CHECK(has_same_values(scheme, {4, 32}, BurnRelease::k023));
    scheme.store = QuantStore::kNative;
    CHECK_EQ(has_same_values(scheme, {4, 32}, BurnRelease::k023), value == QuantValue::kQ4S);
    CHECK(has_same_values(scheme, {4, 32}, BurnRelease::k022));
    CHECK_EQ(has_same_values(scheme, {4, 32}, BurnRelease::k020), value == QuantValue::kQ4S);
  }
}

TEST(payload_lengths_of_020) {
  QuantScheme native;
  native.store = QuantStore::kNative;
  CHECK_EQ(payload_bytes(native, {4, 8}), 32u + 4);
  CHECK_EQ(payload_bytes(native, {5, 5}), 28u + 4);
  CHECK_EQ(payload_bytes(QuantScheme(), {4, 8}), 32u + 4);
  QuantScheme q4;
  q4.value = QuantValue::kQ4F;
  CHECK_EQ(payload_bytes(q4, {4, 8}), 16u + 4);
  CHECK_EQ(payload_bytes(q4, {3, 3}), 8u + 4);
  CHECK_EQ(payload_bytes(q4, {}), 4u + 4);
  CHECK_EQ(payload_bytes(q4, {0, 8}), 4u);
  q4.store = QuantStore::kNative;
  CHECK(CHECK_THROWS(Error, payload_bytes(q4, {4, 8})).code() == ErrorCode::kUnsupported);
  CHECK_EQ(payload_bytes(block_scheme(QuantValue::kQ8S, QuantStore::kNative, {32}), {8, 70}), 560u + 8 * 3 * 4);
  CHECK_EQ(payload_bytes(block_scheme(QuantValue::kQ8S, QuantStore::kNative, {4, 32}, QuantParam::kF16), {8, 64}),
           512u + 2 * 2 * 2);
  CHECK_EQ(payload_bytes(block_scheme(QuantValue::kQ8S, QuantStore::kNative, {1, 1, 32}), {64}), 64u + 2 * 4);
}

TEST(payload_lengths_of_022) {
  QuantScheme q4;
  q4.value = QuantValue::kQ4F;
  q4 = in_022(q4);
  CHECK_EQ(payload_bytes(q4, {3, 3}), 16u);
  CHECK_EQ(payload_bytes(q4, {2, 5, 9}), 84u);
  CHECK_EQ(payload_bytes(q4, {4, 8}), 20u);
  CHECK_EQ(payload_bytes(q4, {}), 8u);
  q4.packed_dim = 1;
  CHECK_EQ(payload_bytes(q4, {9, 3}), 4u * 2 * 3 + 4);
  q4.packed_dim = 2;
  CHECK(CHECK_THROWS(Error, payload_bytes(q4, {9, 3})).code() == ErrorCode::kUnsupported);
  q4.packed_dim = 0;
  q4.store = QuantStore::kNative;
  CHECK_EQ(payload_bytes(q4, {3, 3}), 9u + 4);
  QuantScheme native = q4;
  native.value = QuantValue::kQ8S;
  CHECK_EQ(payload_bytes(native, {5, 5}), 29u);
  native.value = QuantValue::kE2M1;
  native.store = QuantStore::kPackedNative;
  CHECK_EQ(payload_bytes(native, {3, 5}), 3u * 3 + 4);
  QuantScheme two = in_022(block_scheme(QuantValue::kE2M1, QuantStore::kPackedNative, {16}, QuantParam::kUE4M3));
  two.tensor_scale = QuantParam::kF32;
  CHECK_EQ(payload_bytes(two, {2, 32}), 32u + 4 + 4);
}

TEST(payload_lengths_that_cannot_be) {
  const std::vector<std::uint64_t> huge = {std::uint64_t{1} << 33, std::uint64_t{1} << 33};
  CHECK(CHECK_THROWS(Error, payload_bytes(QuantScheme(), huge)).code() == ErrorCode::kLimit);
  CHECK(CHECK_THROWS(Error, payload_bytes(in_022(QuantScheme()), huge)).code() == ErrorCode::kLimit);
  CHECK(CHECK_THROWS(Error, payload_bytes(QuantScheme(), {UINT64_MAX})).code() == ErrorCode::kLimit);
  const QuantScheme block = block_scheme(QuantValue::kQ8S, QuantStore::kNative, {2, 32});
  CHECK(CHECK_THROWS(Error, payload_bytes(block, {64})).code() == ErrorCode::kUnsupported);
  CHECK(!burnpack::payload_fits(QuantScheme(), huge, 4));
}

TEST(files_carry_either_length) {
  QuantScheme native;
  native.store = QuantStore::kNative;
  CHECK(burnpack::payload_fits(native, {5, 5}, 29));
  CHECK(burnpack::payload_fits(native, {5, 5}, 32));
  CHECK(!burnpack::payload_fits(native, {5, 5}, 30));
  CHECK(burnpack::payload_fits(in_022(native), {5, 5}, 32));
}

TEST(one_line_for_people) {
  CHECK_EQ(to_string(QuantScheme()), "Q8F F32 PackedU32(0) Tensor Symmetric");
  CHECK_EQ(to_string(block_scheme(QuantValue::kQ8S, QuantStore::kNative, {32})), "Q8S F32 Native Block[32] Symmetric");
  CHECK_EQ(to_string(block_scheme(QuantValue::kQ4S, QuantStore::kNative, {4, 32}, QuantParam::kBF16)),
           "Q4S BF16 Native Block[4,32] Symmetric");
}

RUN_TESTS()
