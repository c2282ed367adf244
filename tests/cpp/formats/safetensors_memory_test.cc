// Whatever a header says, opening the file takes at most eight times its size and a constant - also to refuse it.

#include <string>
#include <vector>

#include "check.h"
#include "counted_memory.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/safetensors.h"

using namespace weightstore;

namespace {

constexpr std::size_t kConstant = 2u << 20;
// Vectors double: one element more than a power of two is when they waste most.
constexpr std::size_t kMany = (1u << 17) + 1;

// A short name of letters that need no escape, different for every number.
std::string name_of(std::size_t number) {
  constexpr std::string_view kLetters =
      "!#$%&'()*+-./0123456789;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ^_`abcdefghijklmnopqrstuvwxyz{|}~";
  std::string name;
  do {
    name.push_back(kLetters[number % kLetters.size()]);
    number /= kLetters.size();
  } while (number > 0);
  return name;
}

std::string tensor(const std::string& name, const std::string& shape, std::size_t begin, std::size_t end) {
  return "\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(begin) +
         "," + std::to_string(end) + "]}";
}

std::string file_of(const std::vector<std::string>& members, std::size_t data_size) {
  std::string header = "{";
  for (const std::string& member : members) header += (header.size() > 1 ? "," : "") + member;
  header += "}";
  std::string file;
  for (std::uint64_t i = 0, n = header.size(); i < 8; ++i, n >>= 8) file.push_back(static_cast<char>(n & 0xFF));
  file += header;
  file.append(data_size, 'x');
  return file;
}

// Opens a file with these members in its header and holds it to the law. Says whether it was accepted.
bool lawful(const std::vector<std::string>& members, std::size_t data_size = 0) {
  const std::string file = file_of(members, data_size);
  const std::size_t header_size = file.size() - 8 - data_size;
  bool accepted = true;
  const std::size_t used = counted_memory::peak_of([&] {
    try {
      Reader::from_static(test_files::as_bytes(file));
    } catch (const Error&) {
      accepted = false;
    }
  });
  std::printf("  header %9zu bytes, %5.2f times that in memory\n", header_size,
              static_cast<double>(used) / static_cast<double>(header_size));
  CHECK(used <= 8 * header_size + kConstant);
  return accepted;
}

}  // namespace

TEST(many_tiny_tensors) {
  std::vector<std::string> members;
  for (std::size_t i = 0; i < kMany; ++i) members.push_back(tensor(name_of(i), "0", 0, 0));
  CHECK(lawful(members));
}

TEST(many_tiny_tensors_in_reverse) {
  std::vector<std::string> members;
  for (std::size_t i = kMany; i-- > 0;) members.push_back(tensor(name_of(i), "1", i, i + 1));
  CHECK(lawful(members, kMany));
}

TEST(many_scalars_with_the_shortest_type) {
  std::vector<std::string> members;
  for (std::size_t i = 0; i < kMany; ++i) {
    members.push_back("\"" + name_of(i) + "\":{\"dtype\":\"F4\",\"shape\":[0],\"data_offsets\":[0,0]}");
  }
  CHECK(lawful(members));
}

TEST(many_tiny_metadata_entries) {
  for (const std::size_t count : {kMany, 4 * (kMany - 1) + 1}) {
    std::string metadata = "\"__metadata__\":{";
    for (std::size_t i = 0; i < count; ++i) metadata += (i > 0 ? ",\"" : "\"") + name_of(i) + "\":\"\"";
    CHECK(lawful({metadata + "}"}));
  }
}

TEST(long_shapes) {
  std::string shape = "0";
  for (int i = 1; i < 65'536; ++i) shape += ",0";
  std::vector<std::string> members;
  for (std::size_t i = 0; i < 33; ++i) members.push_back(tensor(name_of(i), shape, 0, 0));
  CHECK(lawful(members));
  std::string large = "0";
  for (int i = 1; i < 65'536; ++i) large += ",18446744073709551615";
  CHECK(lawful({tensor("a", large, 0, 0), tensor("b", large, 0, 0)}));
  CHECK(!lawful({tensor("a", shape + ",0", 0, 0)}));
}

TEST(one_enormous_name) {
  const std::string name((16u << 20) + 1, 'n');
  CHECK(lawful({tensor(name, "0", 0, 0)}));
  CHECK(lawful({"\"__metadata__\":{\"k\":\"" + name + "\"}"}));
}

// An error that repeats what it refuses must not cost more than what it refuses.
TEST(one_enormous_name_that_is_refused) {
  const std::string name((16u << 20) + 1, 'n');
  const std::string escaped = "\\n" + name;
  for (const std::string& text : {name, escaped}) {
    CHECK(!lawful({tensor(text, "1", 0, 0)}));
    CHECK(!lawful({tensor(text, "1", 1, 2)}, 2));
    CHECK(!lawful({tensor(text, "x", 0, 0)}));
    CHECK(!lawful({tensor(text, "0", 0, 0), tensor(text, "0", 0, 0)}));
    CHECK(!lawful({"\"a\":{\"dtype\":\"" + text + "\"}"}));
    CHECK(!lawful({"\"a\":{\"" + text + "\":}"}));
    CHECK(!lawful({"\"__metadata__\":{\"" + text + "\":1}"}));
    CHECK(!lawful({"\"__metadata__\":{\"" + text + "\":\"\",\"" + text + "\":\"\"}"}));
  }
}

TEST(deep_and_wide_ignored_fields) {
  std::string wide = "[0";
  for (int i = 0; i < 1'000'000; ++i) wide += ",0";
  CHECK(lawful({"\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":" + wide + "]}"}));
  CHECK(!lawful({"\"a\":{\"x\":" + std::string(1'000'000, '[')}));
}

RUN_TESTS()
