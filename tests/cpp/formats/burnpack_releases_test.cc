// Burnpack files differ by the release of Burn that they are for: booleans, quantized tensors, and what is refused.

#include <string>
#include <utility>
#include <vector>

#include "burnpack_files.h"
#include "burnpack_golden.h"
#include "check.h"
#include "formats/burnpack/quant_cbor.h"
#include "weightstore/burnpack.h"
#include "weightstore/error.h"
#include "weightstore/writer.h"

using namespace weightstore;
using namespace burnpack_files;

namespace {

NewTensor quantized(QuantScheme scheme, Shape shape, std::size_t bytes) {
  return {"q",
          DType::kQFloat,
          std::move(shape),
          octets(std::vector<std::uint8_t>(bytes, 1)),
          std::nullopt,
          std::make_shared<const QuantScheme>(std::move(scheme))};
}

}  // namespace

TEST(data_types_by_release) {
  const auto tensor = [](DType dtype) {
    Writer writer;
    add(writer, "t", dtype, {8}, octets(std::vector<std::uint8_t>(bits_of(dtype))));
    return writer;
  };
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtype == DType::kQFloat) continue;
    const Writer writer = tensor(dtype);
    if (!in_burnpack(dtype)) {
      const Error refused = CHECK_THROWS(Error, burnpack::plan(writer, BurnRelease::k022));
      CHECK(refused.code() == ErrorCode::kInvalidArgument);
      CHECK_EQ(refused.tensor(), "t");
      continue;
    }
    CHECK(read(write(writer, BurnRelease::k021)).dtype(0) == dtype);
    CHECK(write(writer, BurnRelease::k022) == write(writer, BurnRelease::k021));
    const bool boolean = dtype == DType::kBool || dtype == DType::kBoolU8 || dtype == DType::kBoolU32;
    CHECK_EQ(read(write(writer, BurnRelease::k021)).dialect(), boolean ? "0.21" : "0.20");
    if (dtype == DType::kBoolU32) {
      CHECK(CHECK_THROWS(Error, burnpack::plan(writer, BurnRelease::k020)).code() == ErrorCode::kInvalidArgument);
    } else {
      const DType expected = boolean ? DType::kBool : dtype;
      CHECK(read(write(writer, BurnRelease::k020)).dtype(0) == expected);
    }
  }
  CHECK(write(tensor(DType::kBoolU8)).find(unhex("65647479706564426f6f6c")) != std::string::npos);
  CHECK(write(tensor(DType::kBoolU8), BurnRelease::k021).find(unhex("a164426f6f6c625538")) != std::string::npos);
  CHECK(write(tensor(DType::kBoolU32), BurnRelease::k022).find(unhex("a164426f6f6c63553332")) != std::string::npos);
}

TEST(quantized_tensors_by_release) {
  Writer writer;
  writer.add(quantized({}, {4, 8}, 36));
  CHECK(*read(write(writer))[0].quant == QuantScheme());
  CHECK_EQ(read(write(writer)).dialect(), "0.20");
  CHECK(write(writer, BurnRelease::k021) == write(writer));
  const TensorTable newest = read(write(writer, BurnRelease::k022));
  CHECK_EQ(newest.dialect(), "0.22");
  CHECK(newest[0].quant->release == BurnRelease::k022);
  CHECK(as_release(*newest[0].quant, BurnRelease::k020) == QuantScheme());

  QuantScheme lookup = *newest[0].quant;
  lookup.mode = QuantMode::kLookup;
  Writer only_newest;
  only_newest.add(quantized(lookup, {4, 8}, 36));
  CHECK_EQ(read(write(only_newest, BurnRelease::k022)).dialect(), "0.22");
  const Error refused = CHECK_THROWS(Error, burnpack::plan(only_newest, BurnRelease::k021));
  CHECK(refused.code() == ErrorCode::kInvalidArgument);
  CHECK_EQ(refused.tensor(), "q");

  Writer wrong_length;
  wrong_length.add(quantized({}, {4, 8}, 37));
  CHECK(CHECK_THROWS(Error, burnpack::plan(wrong_length, BurnRelease::k020)).code() == ErrorCode::kInvalidArgument);
}

// Burn 0.20 writes values of four bits to a store of whole values, whose length it cannot compute.
TEST(a_scheme_without_a_length_leaves_the_other_tensors_readable) {
  QuantScheme scheme;
  scheme.value = QuantValue::kQ4S;
  scheme.store = QuantStore::kNative;
  std::string index;
  CborWriter writer(index);
  writer.begin_map(1);
  writer.write_text("tensors");
  writer.begin_map(2);
  index += entry("a", "U8", {3}, 0, 3);
  writer.write_text("q");
  writer.begin_map(3);
  writer.write_text("dtype");
  writer.begin_map(1);
  writer.write_text("QFloat");
  burnpack::write_quant_scheme(writer, scheme);
  writer.write_text("shape");
  writer.begin_array(2);
  writer.write_uint(4);
  writer.write_uint(8);
  writer.write_text("data_offsets");
  writer.begin_array(2);
  writer.write_uint(256);
  writer.write_uint(260);
  const TensorTable table = read(aligned(index, std::string(260, 'd')));
  CHECK_EQ(table.nbytes(table.at("a")), 3u);
  CHECK_EQ(table.nbytes(table.at("q")), 4u);
  CHECK(*table[table.at("q")].quant == scheme);

  Writer again;
  again.add(quantized(scheme, {4, 8}, 4));
  const Error refused = CHECK_THROWS(Error, burnpack::plan(again, BurnRelease::k020));
  CHECK(refused.code() == ErrorCode::kUnsupported);
  CHECK_EQ(refused.tensor(), "q");
}

TEST(quantized_tensors_are_not_written_for_releases_that_read_them_otherwise) {
  const auto refusal = [](const QuantScheme& scheme, std::size_t bytes, BurnRelease release) {
    Writer writer;
    writer.add(quantized(scheme, {4, 32}, bytes));
    const Error refused = CHECK_THROWS(Error, burnpack::plan(writer, release));
    CHECK(refused.code() == ErrorCode::kInvalidArgument);
    CHECK_EQ(refused.tensor(), "q");
    return std::string(refused.what());
  };
  QuantScheme blocks;
  blocks.store = QuantStore::kNative;
  blocks.tensor_scale.reset();
  blocks.block_scale = QuantParam::kF32;
  blocks.block = {2, 16};
  Writer writer;
  writer.add(quantized(blocks, {4, 32}, 128 + 16));
  CHECK_EQ(read(write(writer, BurnRelease::k021)).burn_release().has_value(), true);
  CHECK(refusal(blocks, 128 + 16, BurnRelease::k022).find("Burn 0.20") != std::string::npos);

  // Packed along the outer dimension, 0.20 counts eight values to a word of the whole tensor, 0.22 of each column.
  QuantScheme packed;
  packed.value = QuantValue::kQ4S;
  packed.packed_dim = 1;
  CHECK(refusal(packed, 64 + 4, BurnRelease::k022).find("takes 132") != std::string::npos);

  QuantScheme codes = *as_release(QuantScheme(), BurnRelease::k023);
  codes.value = QuantValue::kE4M3;
  codes.store = QuantStore::kNative;
  CHECK(refusal(codes, 128 + 4, BurnRelease::k022).find("E4M3") != std::string::npos);
}

TEST(the_release_of_a_file) {
  const auto release = [](DType dtype, BurnRelease written_for, std::string_view producer, std::string_view version) {
    Writer writer;
    if (dtype == DType::kQFloat) {
      writer.add(quantized({}, {4, 8}, 36));
    } else {
      add(writer, "t", dtype, {4}, octets(std::vector<std::uint8_t>(bits_of(dtype) / 2)));
    }
    if (!producer.empty()) writer.set_metadata("producer", producer);
    if (!version.empty()) writer.set_metadata(producer == "weightstore" ? "burn" : "version", version);
    const TensorTable table = read(write(writer, written_for));
    if (dtype == DType::kQFloat)
      CHECK(table[0].quant->release == *table.burn_release() || written_for < BurnRelease::k022);
    return table.burn_release();
  };
  using enum BurnRelease;
  CHECK(release(DType::kF32, k022, "", "") == std::nullopt);
  CHECK(release(DType::kF32, k022, "burn", "0.21.0") == k021);
  CHECK(release(DType::kF32, k022, "burn", "mine") == std::nullopt);
  CHECK(release(DType::kF32, k022, "me", "0.21.0") == std::nullopt);
  CHECK(release(DType::kBool, k020, "", "") == k020);
  CHECK(release(DType::kBool, k020, "burn", "0.22.1") == k020);
  CHECK(release(DType::kBool, k022, "", "") == k021);
  CHECK(release(DType::kBool, k022, "burn", "0.23.0-pre.1") == k023);
  CHECK(release(DType::kQFloat, k021, "burn", "0.21.0") == k021);
  CHECK(release(DType::kQFloat, k023, "", "") == k022);
  CHECK(release(DType::kQFloat, k023, "burn", "0.23.0-pre.1") == k023);
  CHECK(release(DType::kQFloat, k023, "weightstore", "0.23") == k023);
}
