// Whose files may be taken for abandoned: by the lock on this host, by their age elsewhere.

#include "io/locks/liveness.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>

#include "check.h"
#include "faulty_file_ops.h"
#include "test_files.h"

using namespace weightstore;
using faulty::Call;
using faulty::FaultyFileOps;
using test_files::TempDir;
using test_files::write_file;

namespace {

constexpr const char* kElsewhere = "no-host-has-this-id";

class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    CHECK(fd_ >= 0);
  }
  ~OpenFile() { ::close(fd_); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

void set_age(const std::filesystem::path& path, std::chrono::minutes age) {
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - age);
}

bool gone(const std::filesystem::path& path, std::string_view host, io::FileOps& ops = io::system_file_ops()) {
  const OpenFile file(path);
  return io::writer_is_gone(file.fd(), host, ops);
}

}  // namespace

TEST(a_host_has_one_id) {
  CHECK_EQ(io::host_id().size(), io::kHostDigits);
  CHECK(io::host_id().find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK_EQ(io::host_id(), io::host_id());
}

TEST(the_lock_decides_about_files_of_this_host) {
  const TempDir dir;
  write_file(dir / "f", "");
  CHECK(gone(dir / "f", io::host_id()));
  const OpenFile writer(dir / "f");
  CHECK_EQ(::flock(writer.fd(), LOCK_EX | LOCK_NB), 0);
  CHECK(!gone(dir / "f", io::host_id()));
}

TEST(age_decides_about_files_of_other_hosts) {
  const TempDir dir;
  write_file(dir / "f", "");
  for (const std::string_view host : {std::string_view(kElsewhere), std::string_view()}) {
    set_age(dir / "f", io::kAbandonedAfter - std::chrono::minutes(5));
    CHECK(!gone(dir / "f", host));
    set_age(dir / "f", io::kAbandonedAfter + std::chrono::minutes(5));
    CHECK(gone(dir / "f", host));
  }
}

TEST(a_held_lock_is_a_sign_of_life_at_any_age) {
  const TempDir dir;
  write_file(dir / "f", "");
  set_age(dir / "f", 10 * io::kAbandonedAfter);
  const OpenFile writer(dir / "f");
  CHECK_EQ(::flock(writer.fd(), LOCK_EX | LOCK_NB), 0);
  CHECK(!gone(dir / "f", io::host_id()));
  CHECK(!gone(dir / "f", kElsewhere));
}

TEST(without_locks_age_decides_on_this_host_too) {
  const TempDir dir;
  write_file(dir / "f", "");
  FaultyFileOps ops({.at = 1, .kind = Call::kFlock, .error = EOPNOTSUPP, .onwards = true});
  CHECK(!gone(dir / "f", io::host_id(), ops));
  set_age(dir / "f", 2 * io::kAbandonedAfter);
  CHECK(gone(dir / "f", io::host_id(), ops));
}

TEST(a_file_whose_age_is_unknown_is_not_abandoned) {
  const TempDir dir;
  write_file(dir / "f", "");
  set_age(dir / "f", 2 * io::kAbandonedAfter);
  FaultyFileOps ops({.at = 1, .kind = Call::kFstat, .error = EIO});
  CHECK(!gone(dir / "f", kElsewhere, ops));
}

RUN_TESTS()
