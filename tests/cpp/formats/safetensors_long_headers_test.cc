// Headers that are longer than the part of them that is in memory. Wherever a part ends, the same tensors are read, and
// errors have the same offsets.

#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"

using namespace weightstore;

namespace {

constexpr std::size_t kPart = std::size_t{256} << 10;  // HeaderWindow::kUsualBytes

std::string file_of(const std::string& header) {
  std::string file;
  for (std::uint64_t i = 0, n = header.size(); i < 8; ++i, n >>= 8) file.push_back(static_cast<char>(n & 0xFF));
  return file + header;
}

Reader read(const std::string& header) { return Reader::from_static(test_files::as_bytes(file_of(header))); }

// Ways to write the member of a header for an empty tensor.
std::string member(const std::string& name, std::size_t way) {
  switch (way % 5) {
    case 0:
      return "\"" + name + "\": {\"dtype\": \"F32\", \"data_offsets\": [0, 0], \"shape\": [0, 12345]}";
    case 1:
      return "\"" + name +
             "\":{\"x\":[true,false,null,-1.5e3,{}],\"dtype\":\"F32\",\"shape\":[0,12345],\"data_offsets\":[0,0]}";
    default:
      return "\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[0,12345],\"data_offsets\":[0,0]}";
  }
}

}  // namespace

TEST(parts_may_end_anywhere) {
  std::mt19937 random(5);
  // Every offset of the end of the first part in a member of each kind.
  for (std::size_t shift = 0; shift < 160; ++shift) {
    std::vector<std::string> names;
    std::string header = "{" + std::string(kPart - 500 - shift, ' ');
    for (std::size_t i = 0; header.size() < kPart + 500; ++i) {
      names.push_back("layer." + std::to_string(i) + ".weight");
      header += (i == 0 ? "" : ",") + member(names.back(), i + shift);
    }
    header += "}";
    const Reader reader = read(header);
    CHECK_EQ(reader.table().size(), names.size());
    for (const std::string& name : names) CHECK(reader.table().shape(reader.table().at(name)) == (Shape{0, 12345}));
  }
}

TEST(members_of_any_length) {
  std::mt19937 random(6);
  for (const std::size_t longest : {std::size_t{100}, std::size_t{10'000}, kPart - 1, kPart, 3 * kPart}) {
    std::vector<std::string> names;
    std::string header = "\n {";
    for (std::size_t i = 0; header.size() < 5 * kPart; ++i) {
      names.push_back(std::to_string(i) + "." + std::string(1 + random() % longest, 'n'));
      header += (i == 0 ? " " : " ,\n") + member(names.back(), i);
      if (i == 0) header += ",\"__metadata__\":{\"k\":\"" + std::string(longest, 'v') + "\",\"\\u00e9\":\"\\n\"}";
    }
    header += "}" + std::string(2 * kPart, ' ');
    const Reader reader = read(header);
    CHECK_EQ(reader.table().size(), names.size());
    for (const std::string& name : names) CHECK(reader.table().find(name).has_value());
    CHECK_EQ(reader.table().metadata().find("k").value().size(), longest);
    CHECK_EQ(reader.table().metadata().find("\xC3\xA9").value(), "\n");
  }
}

TEST(errors_have_offsets_in_the_file) {
  std::string header = "{";
  std::vector<std::size_t> ends;  // of members
  for (std::size_t i = 0; header.size() < 3 * kPart; ++i) {
    header += (i == 0 ? "" : ",") + member("layer." + std::to_string(i), i);
    ends.push_back(header.size());
  }
  header += "}";
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    // The last byte of a member: without it, the next ',' is wrong.
    const std::size_t at = ends[random() % (ends.size() - 1)] - 1;
    std::string broken = header;
    broken[at] = '?';
    const Error error = CHECK_THROWS(Error, read(broken));
    CHECK(error.code() == ErrorCode::kCorrupt);
    CHECK_EQ(error.offset().value(), at + 8);
  }
  for (const std::string& tail : {std::string("x"), std::string(kPart, ' ') + "x"}) {
    const Error error = CHECK_THROWS(Error, read(header + tail));
    CHECK_EQ(error.offset().value(), header.size() + tail.size() - 1 + 8);
  }
  // Cut short anywhere: the text ends too early.
  for (int round = 0; round < 100; ++round) {
    const std::string cut = header.substr(0, random() % header.size());
    const Error error = CHECK_THROWS(Error, read(cut));
    CHECK(error.code() == ErrorCode::kCorrupt);
  }
  const std::string twice = header.substr(0, header.size() - 1) + "," + member("layer.0", 2) + "}";
  CHECK_EQ(CHECK_THROWS(Error, read(twice)).tensor(), "layer.0");
  const std::string metadata = "\"__metadata__\":{}";
  const std::string two = "{" + metadata + "," + header.substr(1, header.size() - 2) + "," + metadata + "}";
  CHECK(std::string(CHECK_THROWS(Error, read(two)).what()).find("duplicate key '__metadata__'") != std::string::npos);
}

TEST(nothing_but_space) {
  for (const std::size_t size : {kPart - 1, kPart, 3 * kPart}) {
    CHECK(CHECK_THROWS(Error, read(std::string(size, ' '))).code() == ErrorCode::kCorrupt);
    CHECK_EQ(read(std::string(size, ' ') + "{}" + std::string(size, '\n')).table().size(), 0u);
    CHECK_EQ(read("{" + std::string(size, ' ') + "}").table().size(), 0u);
  }
}

RUN_TESTS()
