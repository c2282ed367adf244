// Locks and heartbeats of a save, and processes that are forked meanwhile.

#include "checkpoint/save/protocol/lease.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "check.h"
#include "long_lived_children.h"
#include "saver_crash.h"

using namespace weightstore;
using namespace saver_crash;
using long_lived_children::LongLived;
using test_files::TempDir;
using test_files::write_file;

TEST(a_child_does_not_keep_the_lock_of_a_parent_that_died) {
  const TempDir dir;
  const LongLived children;
  CHECK_EQ(in_child([&] {
             const auto lock = checkpoint::Lease::acquire(dir / "lock", io::system_file_ops());
             children.make_child();
             ::_exit(42);
           }),
           42);
  const auto lock = checkpoint::Lease::acquire(dir / "lock", io::system_file_ops());
}

// As above, but the child is made before the parent has the lock: just after the file was opened.
TEST(a_child_that_is_made_while_a_file_is_opened_does_not_keep_its_lock) {
  class Forking final : public io::FileOps {
   public:
    explicit Forking(const LongLived& children) : children_(children) {}
    int open(const char* path, int flags, mode_t mode) override {
      const int fd = FileOps::open(path, flags, mode);
      forked_ = std::async(std::launch::async, [this] { children_.make_child(); });
      forked_.wait_for(std::chrono::milliseconds(200));  // a fork may have to wait until the file is known
      return fd;
    }
    void wait() { forked_.wait(); }

   private:
    const LongLived& children_;
    std::future<void> forked_;
  };
  for (const bool looks : {false, true}) {
    const TempDir dir;
    write_file(dir / "lock", "");
    const LongLived children;
    CHECK_EQ(in_child([&] {
               Forking ops(children);
               std::optional<checkpoint::Lease> lock;
               if (looks) {
                 checkpoint::read_lease(dir / "lock", ops);
               } else {
                 lock.emplace(checkpoint::Lease::acquire(dir / "lock", ops));
               }
               ops.wait();
               ::_exit(42);
             }),
             42);
    const auto lock = checkpoint::Lease::acquire(dir / "lock", io::system_file_ops());
  }
}

// The child has the object, but neither the descriptor nor the thread that writes the heartbeat.
TEST(a_child_lets_go_of_its_parents_file_at_once_and_leaves_it_alone) {
  const TempDir dir;
  std::optional<checkpoint::Lease> lock(checkpoint::Lease::acquire(dir / "lock", io::system_file_ops()));
  std::this_thread::sleep_for(2 * checkpoint::kHeartbeat);  // the thread waits for its next heartbeat
  CHECK_EQ(in_child([&] {
             ::alarm(10);
             std::vector<int> own;  // one of them has the number that the lock had
             for (int i = 0; i < 10; ++i) own.push_back(::open((dir / "lock").c_str(), O_RDONLY | O_CLOEXEC));
             lock.reset();
             const bool open = std::all_of(own.begin(), own.end(), [](int fd) { return ::fcntl(fd, F_GETFD) >= 0; });
             ::_exit(open ? 0 : 1);
           }),
           0);
  CHECK(std::filesystem::exists(dir / "lock"));
  CHECK_THROWS(Error, checkpoint::Lease::acquire(dir / "lock", io::system_file_ops()));
  lock.reset();
  CHECK(!std::filesystem::exists(dir / "lock"));
}

RUN_TESTS()
