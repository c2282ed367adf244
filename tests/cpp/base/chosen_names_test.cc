// Names that all collide in the standard library's hash cost no more than others do, wherever names of a file are
// looked at for being different. Comparisons are counted, not timed.

#include <cstdio>
#include <string>
#include <vector>

#include "base/name_set.h"
#include "check.h"
#include "codec/json.h"
#include "colliding_names.h"
#include "counted_bytes.h"
#include "file/renamed_tensors.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"
#include "weightstore/writer.h"

using namespace weightstore;

namespace {

constexpr std::size_t kCount = 4000;
// Sorting takes about twelve comparisons a name, copying and hashing a few calls more. Each against each would be
// 2,000.
constexpr std::uint64_t kCallsPerName = 100;

const std::vector<std::string>& names() {
  static const std::vector<std::string> made = colliding_names::make(kCount);
  return made;
}

Writer contents() {
  Writer writer;
  for (const std::string& name : names()) writer.add(name, DType::kU8, {0}, {});
  return writer;
}

template <class Operation>
void check_linear(Operation operation) {
  const std::uint64_t before = counted_bytes::calls;
  operation();
  const std::uint64_t calls = counted_bytes::calls - before;
  std::printf("  %.1f calls a name\n", static_cast<double>(calls) / kCount);
  CHECK(calls > 0 && calls <= kCallsPerName * kCount);
}

}  // namespace

TEST(the_names_collide) {
#ifdef __GLIBCXX__
  CHECK_EQ(names().size(), kCount);
  for (const std::string& name : names()) {
    CHECK_EQ(std::hash<std::string_view>()(name), std::hash<std::string_view>()(names().front()));
  }
#endif
}

TEST(saving) {
  const Writer writer = contents();
  check_linear([&] { safetensors::plan(writer, TensorOrder::kAsAdded); });
}

TEST(renaming) {
  TensorTable table;
  for (const std::string& name : names()) table.add({name, DType::kU8, {}, 0, 0, 0, {}, nullptr});
  table.finish();
  check_linear([&] { CHECK_EQ(rename_tensors(table, {}).names.size(), kCount); });
}

TEST(decoding_json) {
  std::string json = "{";
  for (const std::string& name : names()) {
    append_json_string(json, name);
    json += ":0,";
  }
  json.back() = '}';
  check_linear([&] { CHECK_EQ(json_decode(json).get_if<Value::Map>()->size(), kCount); });
}

TEST(a_name_given_twice_is_found) {
  const std::vector<std::string> some = {"a", "b", "", "c", "b", ""};
  NameSet set(some.size(), [&](std::size_t i) { return std::string_view(some[i]); });
  for (std::size_t i = 0; i < 4; ++i) CHECK(!set.add(i));
  CHECK_EQ(*set.add(4), 1u);
  CHECK_EQ(*set.add(5), 2u);
}

RUN_TESTS()
