// The text of an Error.

#include "weightstore/error.h"

#include <cerrno>
#include <string>

#include "check.h"
#include "io/checked_io.h"

using namespace weightstore;

TEST(a_text_says_where_and_why) {
  Error error(ErrorCode::kIo, "cannot read");
  error.in_tensor("w").in_file("m.safetensors").at_offset(8).with_errno(ENOSPC);
  CHECK_EQ(std::string(error.what()), "m.safetensors: tensor 'w': cannot read: No space left on device (at byte 8)");
}

TEST(the_first_place_counts) {
  Error error(ErrorCode::kCorrupt, "is damaged");
  error.in_tensor("inner").in_tensor("outer").in_file("a").in_file("b").with_errno(EIO).with_errno(ENOENT);
  CHECK_EQ(error.tensor(), "inner");
  CHECK_EQ(error.path(), "a");
  CHECK_EQ(error.os_errno(), EIO);
}

TEST(an_equivalent_errno_adds_no_text) {
  Error found(ErrorCode::kIo, "this is a directory");
  found.in_file("d").equivalent_errno(EISDIR).with_errno(EIO);
  CHECK_EQ(found.os_errno(), EISDIR);
  CHECK_EQ(std::string(found.what()), "d: this is a directory");
}

TEST(a_timeout_says_itself_what_was_late) {
  Error error(ErrorCode::kIo, "shard 0 did not begin within 10 ms");
  error.equivalent_errno(ETIMEDOUT);
  CHECK_EQ(error.os_errno(), ETIMEDOUT);
  CHECK_EQ(std::string(error.what()), "shard 0 did not begin within 10 ms");
  const Error late = io::io_error(ETIMEDOUT, "cannot read", "m");
  CHECK_EQ(late.os_errno(), ETIMEDOUT);
  CHECK_EQ(std::string(late.what()), "m: cannot read: the file system timed out");
}

TEST(control_characters_are_escaped) {
  CHECK_EQ(escape_controls("a\x1b[2Jb\n"), "a\\x1b[2Jb\\x0a");
  CHECK_EQ(std::string(Error(ErrorCode::kNotFound, "x\ry").what()), "x\\x0dy");
  CHECK(printable(std::string(1000, 'x')).size() < 300);
}

RUN_TESTS()
