#pragma once

// The library as the processes of a schedule (save_protocol_model.h): each process saves on a thread of its own, and
// stops wherever the model says that another process may come between.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/save/protocol/save_history.h"
#include "io/file_ops.h"
#include "save_protocol_model.h"
#include "saver_files.h"

namespace save_player {

using namespace weightstore;
using namespace save_model;
using namespace saver_files;

inline constexpr auto kTimeout = std::chrono::hours(1);  // on the clock of PlayedOps, which a schedule moves

struct Crash {};  // no std::exception: nothing cleans up behind it

// The operating system as one process sees it. The process stops at every step that `stops_at` names, until the player
// lets it go on. A process that has crashed changes no file any more.
class PlayedOps final : public io::FileOps {
 public:
  explicit PlayedOps(std::set<std::string> stops_at) : stops_at_(std::move(stops_at)) {}

  // For the player: lets the process go on, and waits until it stops again or is idle.
  void go_on() {
    std::unique_lock lock(mutex_);
    running_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !running_; });
  }
  const std::string& stopped_at() const { return stopped_at_; }  // "" when idle
  void crash() { dead_ = true; }
  void pass_deadline() { later_ += 2 * kTimeout; }

  // For the process: waits until it may go on.
  void stop(const std::string& at) {
    std::unique_lock lock(mutex_);
    stopped_at_ = at;
    running_ = false;
    changed_.notify_all();
    changed_.wait(lock, [&] { return running_; });
    if (dead_) throw Crash{};
  }
  void wait_for_start() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_; });
  }
  void finish() {
    const std::lock_guard lock(mutex_);
    stopped_at_.clear();
    running_ = false;
    changed_.notify_all();
  }

  void reached(const char* step) override {
    if (stops_at_.contains(step)) stop(step);
  }
  void pause(std::chrono::milliseconds) override { stop("pause"); }
  std::chrono::steady_clock::time_point now() override { return FileOps::now() + later_; }

  int open(const char* path, int flags, mode_t mode) override { return dead() ? -1 : FileOps::open(path, flags, mode); }
  ssize_t pwrite(int fd, const void* data, std::size_t length, off_t offset) override {
    return dead() ? -1 : FileOps::pwrite(fd, data, length, offset);
  }
  int rename(const char* from, const char* to) override { return dead() ? -1 : FileOps::rename(from, to); }
  int unlink(const char* path) override { return dead() ? -1 : FileOps::unlink(path); }
  int mkdir(const char* path, mode_t mode) override { return dead() ? -1 : FileOps::mkdir(path, mode); }
  int rmdir(const char* path) override { return dead() ? -1 : FileOps::rmdir(path); }

 private:
  bool dead() {
    if (dead_) errno = EIO;
    return dead_;
  }

  const std::set<std::string> stops_at_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false;
  std::string stopped_at_;
  std::atomic<bool> dead_ = false;
  std::chrono::hours later_{0};
};

inline float tag_of(int run, int save) { return static_cast<float>(run * 10 + save); }

inline std::set<std::string> stops_of(Naming naming, int shard) {
  if (shard == 0) {
    return {naming == Naming::kRun ? "data written" : "token published", "record written", "records collected"};
  }
  if (naming == Naming::kRun) return {"data written"};
  return {"token joined", "token read again"};
}

// A process that makes one save after another on a thread of its own.
class Player {
 public:
  Player(const World& world, const std::filesystem::path& path, int run, int shard)
      : world_(world), path_(path), run_(run), shard_(shard), ops_(stops_of(world.naming, shard)) {}
  ~Player() {
    if (thread_.joinable() && !idle()) crash();
  }
  Player(const Player&) = delete;

  void begin(int save) {
    if (thread_.joinable()) thread_.join();
    error_.clear();
    thread_ = std::jthread([this, save] { work(save); });
    ops_.go_on();
  }
  void go_on() { ops_.go_on(); }
  void pass_deadline() {
    ops_.pass_deadline();
    ops_.go_on();
  }
  void crash() {
    ops_.crash();
    if (!idle()) ops_.go_on();
    if (thread_.joinable()) thread_.join();
  }
  bool idle() const { return ops_.stopped_at().empty(); }
  const std::string& stopped_at() const { return ops_.stopped_at(); }
  const std::string& error() const { return error_; }

 private:
  void work(int save) {
    ops_.wait_for_start();
    const checkpoint::ScopedSaveHistory scope(memory_);
    const io::FileOpsScope files(ops_);
    try {
      SaveOptions options;
      options.durable = false;
      options.timeout = kTimeout;
      if (world_.naming != Naming::kCount) options.attempt = std::to_string(save);
      if (world_.naming == Naming::kRun) options.run = "run " + std::to_string(run_);
      Saver saver(shard_, world_.shards, 1, path_);
      saver.configure(options);
      const auto part = static_cast<std::uint64_t>(shard_);
      const auto shards = static_cast<std::uint64_t>(world_.shards);
      const auto user = table("user", 1, part, shards, 1);
      user->insert(std::vector<std::int64_t>{static_cast<std::int64_t>(shard_buckets(part, shards).begin)},
                   table_values::bytes_of(std::vector<float>{tag_of(run_, save)}));
      saver.save(saver.make_write_blocks(Tables{user}, {}));
    } catch (const std::exception& error) {
      error_ = error.what();
    } catch (const Crash&) {
      error_ = "crashed";
    }
    ops_.finish();
  }

  const World world_;
  const std::filesystem::path path_;
  const int run_;
  const int shard_;
  checkpoint::SaveHistory memory_;
  PlayedOps ops_;
  std::string error_;
  std::jthread thread_;
};

}  // namespace save_player
