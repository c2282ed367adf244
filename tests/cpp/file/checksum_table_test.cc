#include "file/checksum_table.h"

#include <string>
#include <vector>

#include "check.h"
#include "test_files.h"
#include "weightstore/error.h"

using namespace weightstore;

namespace {

// Tensors a, b and c.
TensorTable three() {
  TensorTable table;
  table.add_source(test_files::source_of("abc"));
  for (const char* name : {"a", "b", "c"}) {
    TensorTable::Row tensor;
    tensor.name = name;
    table.add(tensor);
  }
  table.finish();
  return table;
}

}  // namespace

TEST(the_entry_is_sorted_and_escaped) {
  const std::vector<std::string_view> names = {"b", "a\"", ""};
  const std::vector<std::uint32_t> crcs = {0xFFFFFFFF, 0, 0x0abc0def};
  CHECK_EQ(checksum_entry(names, crcs), R"({"":"0abc0def","a\"":"00000000","b":"ffffffff"})");
  CHECK_EQ(checksum_entry({}, {}), "{}");
}

TEST(what_is_written_is_read) {
  const TensorTable table = three();
  ChecksumTable checksums(3);
  const std::vector<std::string_view> names = {"a", "c", "gone"};
  const std::vector<std::uint32_t> crcs = {1, 0xDEADBEEF, 3};
  checksums.add({checksum_entry(names, crcs), 0}, table);
  CHECK_EQ(checksums.sections(table).size(), 2u);
  CHECK(checksums.expected(table.at("a")) == 1u);
  CHECK(checksums.expected(table.at("c")) == 0xDEADBEEFu);
  CHECK(!checksums.expected(table.at("b")));
}

TEST(each_tensor_is_checked_once) {
  const TensorTable table = three();
  ChecksumTable checksums(3);
  checksums.add({R"({"a":"0000000A"})", std::nullopt}, table);
  const std::size_t a = table.at("a");
  CHECK(checksums.needs_check(table, a));
  CHECK(!checksums.needs_check(table, table.at("b")));
  const Error error = CHECK_THROWS(Error, checksums.compare(table, a, 11));
  CHECK(error.code() == ErrorCode::kCorrupt);
  CHECK(error.message().find("0000000b") != std::string::npos);
  CHECK(error.message().find("0000000a") != std::string::npos);
  // A failure is not remembered as a success.
  CHECK(checksums.needs_check(table, a));
  checksums.compare(table, a, 10);
  CHECK(!checksums.needs_check(table, a));
}

TEST(a_part_is_compared_again_when_asked_for) {
  const TensorTable table = three();
  ChecksumTable checksums(3);
  checksums.add({R"({"a":"0000000A","b":"00000000"})", std::nullopt}, table);
  checksums.accept(table.at("a"));
  checksums.check(table, table.at("a"), nullptr);  // was found right, and is not looked at
  const Error error = CHECK_THROWS(Error, checksums.check_section(table, table.at("a")));
  CHECK_EQ(error.tensor(), "a");
  CHECK_EQ(error.path(), "<memory>");
  checksums.check_section(table, table.at("b"));  // has no bytes, and the checksum of none
  CHECK(!checksums.needs_check(table, table.at("b")));
}

TEST(all_tensors_are_required_or_none) {
  const TensorTable table = three();
  ChecksumTable checksums(3);
  CHECK(CHECK_THROWS(Error, checksums.require_all(table)).code() == ErrorCode::kUnsupported);
  checksums.add({R"({"a":"00000000","c":"00000000"})", std::nullopt}, table);
  const Error error = CHECK_THROWS(Error, checksums.require_all(table));
  CHECK(error.code() == ErrorCode::kCorrupt);
  CHECK_EQ(error.tensor(), "b");
  checksums.add({R"({"b":"00000000"})", std::nullopt}, table);
  checksums.require_all(table);
}

TEST(a_broken_entry_is_refused) {
  const TensorTable table = three();
  for (const char* entry : {"", "[]", "{", R"({"a":1})", R"({"a":"1"})", R"({"a":"000000001"})", R"({"a":"0000000g"})",
                            R"({"a":"0x000001"})", R"({"a":"-0000001"})", R"({"a":" 0000001"})", R"({"a":null})",
                            R"({"a":"00000001"}x)", R"({"a":"00000001","a":"00000001"})", R"({"unknown":"1"})"}) {
    ChecksumTable checksums(3);
    const Error error = CHECK_THROWS(Error, checksums.add({entry, 0}, table));
    CHECK(error.code() == ErrorCode::kCorrupt);
    CHECK(error.message().find("weightstore.crc32c") != std::string::npos);
  }
}

TEST(tensors_of_other_sources_are_passed_over) {
  const TensorTable table = three();
  ChecksumTable checksums(3);
  checksums.add({R"({"a":"00000001"})", 1}, table);
  CHECK(checksums.sections(table).empty());
}

RUN_TESTS()
