// Ranks that write blocks of a file together: here threads, each with a mapping of its own.

#include "file/boxes/box_exchange.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/crc32c_parts.h"
#include "check.h"
#include "file/boxes/box_writer.h"
#include "test_files.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"

using namespace weightstore;
using test_files::as_bytes;
using test_files::pattern;
using test_files::read_file;
using test_files::TempDir;

namespace {

constexpr unsigned kMembers = 3;
constexpr std::uint64_t kRows = 9000;
constexpr std::uint64_t kColumns = 3000;  // 27 MB: eight blocks, six slots

struct Memory {
  int fd = ::memfd_create("box_exchange_test", MFD_CLOEXEC);
  explicit Memory(std::uint64_t blocks) {
    CHECK(::ftruncate(fd, static_cast<off_t>(BoxExchange::memory_bytes(kMembers, blocks))) == 0);
  }
  ~Memory() { ::close(fd); }
};

// The columns of a member, as they lie in its memory.
std::string columns_of(const std::string& tensor, std::uint64_t first, std::uint64_t count) {
  std::string result;
  for (std::uint64_t row = 0; row < kRows; ++row) result += tensor.substr(row * kColumns + first, count);
  return result;
}

}  // namespace

TEST(members_write_one_file) {
  const TempDir dir;
  const std::filesystem::path path = dir / "f";
  const std::uint64_t begin = 1000;  // of the tensor in the file
  const std::string tensor = pattern(kRows * kColumns, 5);
  create_box_file(path, begin + tensor.size(), io::system_file_ops());
  const Memory memory(8);
  std::vector<std::uint32_t> remainders(kMembers);
  std::vector<std::thread> members;
  for (unsigned member = 0; member < kMembers; ++member) {
    members.emplace_back([&, member] {
      const std::uint64_t first = member * 1000, count = 1000;
      const std::string bytes = columns_of(tensor, first, count);
      StridedArray values;
      values.data = as_bytes(bytes).data();
      values.item_bytes = 1;
      values.shape = {kRows, count};
      values.byte_strides = {static_cast<std::int64_t>(count), 1};
      NewBox box{"t", 0, begin, {1, {kRows, kColumns}, {0, first}, {kRows, count}}, values};
      box.shared = SharedRange{0, 0, tensor.size()};
      BoxExchange exchange(memory.fd, member, kMembers, 8, {}, std::chrono::seconds(60));
      BoxWriteOptions options;
      options.threads = 2;
      options.exchange = &exchange;
      remainders[member] = write_boxes({&path, 1}, {&box, 1}, options, io::system_file_ops()).front();
    });
  }
  for (std::thread& member : members) member.join();
  CHECK(read_file(path).substr(begin) == tensor);
  CHECK_EQ(crc32c_of_remainder(remainders[0] ^ remainders[1] ^ remainders[2], tensor.size()), crc32c(as_bytes(tensor)));
}

TEST(a_member_that_fails_or_does_nothing) {
  const Memory memory(100);
  const io::StopFlag stop;
  BoxExchange waiting(memory.fd, 0, kMembers, 100, {}, std::chrono::milliseconds(100));
  BoxExchange failing(memory.fd, 1, kMembers, 100, {}, std::chrono::milliseconds(100));
  CHECK(!waiting.enter(5, stop).empty());
  CHECK(CHECK_THROWS(Error, waiting.enter(6, stop)).message().find("has done nothing") != std::string::npos);
  failing.fail();
  CHECK(CHECK_THROWS(Error, waiting.enter(6, stop)).message().find("rank 1 has failed") != std::string::npos);
  CHECK_THROWS(Error, waiting.wait_for_all());
  io::StopFlag stopped;
  stopped.set();
  CHECK(waiting.enter(6, stopped).empty());
}
