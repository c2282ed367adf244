#include "codec/zip_directory.h"

#include <string>

#include "check.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "zip_files.h"

using namespace weightstore;
using zip_files::archive;

namespace {

ZipDirectory read(std::string_view bytes) { return ZipDirectory::read(*test_files::source_of(bytes), {}); }

std::string content(std::string_view bytes, std::string_view name) {
  const auto source = test_files::source_of(bytes);
  const ZipDirectory directory = ZipDirectory::read(*source, {});
  return std::string(directory.content(*source, directory.find(name).value()));
}

std::string refusal(std::string_view bytes) {
  const Error error = CHECK_THROWS(Error, read(bytes));
  CHECK(error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kUnsupported);
  return error.message();
}

bool says(const std::string& message, std::string_view what) { return message.find(what) != std::string::npos; }

std::string patched(std::string bytes, std::size_t at, std::string_view with) {
  return bytes.replace(at, with.size(), with);
}

const std::vector<zip_files::Record> kTwo = {{"a/x", "hello"}, {"a/y", "", false}};

}  // namespace

TEST(records_in_the_order_of_their_data) {
  for (const bool zip64 : {true, false}) {
    const std::string file = archive(kTwo, zip64);
    const ZipDirectory directory = read(file);
    CHECK_EQ(directory.size(), 2u);
    CHECK_EQ(directory[0].name, "a/x");
    CHECK_EQ(file.substr(directory[0].begin, directory[0].size), "hello");
    CHECK_EQ(directory[1].size, 0u);
    CHECK(directory.find("a/y") == 1u);
    CHECK(!directory.find("a/z") && !directory.find(""));
    CHECK_EQ(content(file, "a/x"), "hello");
  }
}

TEST(an_archive_may_be_empty) { CHECK_EQ(read(archive({})).size(), 0u); }

TEST(every_cut_and_every_addition_is_refused) {
  const std::string file = archive(kTwo);
  for (std::size_t n = 0; n < file.size(); ++n) refusal(std::string_view(file).substr(0, n));
  refusal(file + '\0');
  refusal('\0' + file);
  refusal(file + file);
}

TEST(no_changed_byte_escapes) {
  // The bytes of contents and their checksums aside, a change is seen or says nothing.
  const std::string file = archive(kTwo);
  const auto source = test_files::source_of(file);
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (const char bit : {'\1', '\x80'}) {
      std::string changed = file;
      changed[i] = static_cast<char>(changed[i] ^ bit);
      try {
        const ZipDirectory directory = read(changed);
        CHECK_EQ(directory.size(), 2u);
        CHECK_EQ(directory[0].size, 5u);
        CHECK_EQ(directory[0].begin, 33u);
      } catch (const Error& error) {
        CHECK(error.code() != ErrorCode::kIo);
      }
    }
  }
}

TEST(names_that_come_twice_or_lead_elsewhere) {
  CHECK(says(refusal(archive({{"a/x", "1"}, {"a/x", "2"}})), "two records"));
  for (const char* name :
       {"", "/x", "a//x", "a//", "/", "../x", "a/../x", "a/./x", "a\\x", "a/\x01", "a/\xFF", "a/\x7F"}) {
    CHECK(says(refusal(archive({{name, "1"}})), "name"));
  }
}

TEST(folders_are_passed_over) {
  const std::string file = archive({{"a/", ""}, {"a/x", "hello"}, {"a/b/", ""}});
  const ZipDirectory directory = read(file);
  CHECK_EQ(directory.size(), 1u);
  CHECK(!directory.find("a/"));
  CHECK_EQ(content(file, "a/x"), "hello");
  CHECK(says(refusal(archive({{"a/", "1"}})), "folder"));
}

TEST(a_damaged_record_is_found) {
  const std::string file = archive(kTwo);
  const std::string damaged = patched(file, file.find("hello"), "jello");
  CHECK(says(CHECK_THROWS(Error, content(damaged, "a/x")).message(), "CRC"));
  // A CRC of zero means that the writer left it out.
  std::string without = damaged;
  const std::string crc = file.substr(file.find("PK\1\2") + 16, 4);
  for (std::size_t at = without.find(crc); at != std::string::npos; at = without.find(crc)) {
    without.replace(at, 4, std::string(4, '\0'));
  }
  CHECK_EQ(content(without, "a/x"), "jello");
}

TEST(a_local_header_must_repeat_the_directory) {
  const std::string file = archive(kTwo);
  CHECK(says(refusal(patched(file, 30, "b")), "its name"));
  CHECK(says(refusal(patched(file, 6, std::string_view("\0\x08", 2))), "flags"));
  CHECK(says(refusal(patched(file, 8, "\x08")), "compressed"));
  CHECK(says(refusal(patched(file, 22, "\1")), "size"));
}

TEST(records_do_not_overlap) {
  // The second entry points at the first record.
  const std::string file = archive({{"a/x", "hello"}, {"a/y", "world"}});
  const std::size_t second = file.rfind("PK\1\2");
  CHECK(says(refusal(patched(file, second + 42, std::string_view("\0\0\0\0", 4))), "reaches into"));
}

TEST(limits) {
  const auto source = test_files::source_of(archive(kTwo));
  CHECK(CHECK_THROWS(Error, ZipDirectory::read(*source, {1, 1000})).code() == ErrorCode::kLimit);
  CHECK(CHECK_THROWS(Error, ZipDirectory::read(*source, {10, 20})).code() == ErrorCode::kLimit);
}

RUN_TESTS()
