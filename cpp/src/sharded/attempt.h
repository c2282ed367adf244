#pragma once

// One try at saving: its id, who may try, and the names of what it leaves in the directory until it is committed.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "io/file_ops.h"

namespace weightstore::sharded {

// What polls another shard's progress looks this often.
inline constexpr auto kPollInterval = std::chrono::milliseconds(20);

// 1 to 64 letters, digits, '-', '_' and '.'.
bool is_attempt(std::string_view text);
// Throws Error(kInvalidArgument) unless it is one.
void check_attempt(std::string_view attempt);
// Throws Error(kInvalidArgument) unless the run can be told in a token.
void check_run(std::string_view run);

// ".weightstore-save.<rest>": everything a save puts beside a checkpoint begins like this.
std::string protocol_name(const std::string& rest);
// ".weightstore-save.<attempt>-s00001.json"
std::string record_name(std::string_view attempt, std::uint64_t shard);
// What shard 0 will rename where, written before it begins: see commit.cc.
inline constexpr const char* kJournal = ".weightstore-save.journal";

// Data files of one try: "<prefix><attempt>[~<n>]-s00001-f00002.safetensors". The number behind '~' tells tries under
// the same id apart, so that no file is ever overwritten.
std::string data_name(std::string_view prefix, std::string_view attempt, unsigned attempt_try, std::uint64_t shard,
                      std::uint64_t file);
inline constexpr const char* kPlainPrefix = "model-";
inline constexpr const char* kHiddenPrefix = ".weightstore-save.";
// The attempt of a file that data_name(), record_name() or a lock or token named; nullopt for all others' files. Empty
// for those that belong to no attempt.
std::optional<std::string> attempt_of_name(std::string_view file_name);

// The first try under which this shard has no files in `directory` yet.
unsigned next_try(const std::filesystem::path& directory, std::string_view prefix, std::string_view attempt,
                  std::uint64_t shard);

// A regular file, held open and locked; removed with the object. Whoever finds it unlocked knows that its owner is
// gone.
class HeldFile {
 public:
  // Creates or takes over `path`. Throws Error(kConflict) when somebody holds it.
  static HeldFile lock(const std::filesystem::path& path, io::FileOps& ops);
  // Appears at `path`, locked and with this text, in place of what was there.
  static HeldFile publish(const std::filesystem::path& path, std::string_view text, io::FileOps& ops);

  HeldFile(HeldFile&& other) noexcept;
  HeldFile& operator=(HeldFile&&) = delete;
  ~HeldFile();

 private:
  HeldFile(std::string path, int fd, io::FileOps& ops) : path_(std::move(path)), fd_(fd), ops_(ops) {}

  std::string path_;
  int fd_;
  io::FileOps& ops_;
};

// Keeps other saves out of the directory. Throws Error(kConflict) when one is running.
HeldFile lock_directory(const std::filesystem::path& directory, io::FileOps& ops);
// Tells the other shards of the run the attempt's id.
HeldFile publish_attempt(const std::filesystem::path& directory, std::string_view attempt, std::string_view run,
                         io::FileOps& ops);
// The id that a living shard 0 of the run has published and that is new to us, as soon as there is one. Ids for which
// `took_part` are of a save to which this shard has given its part already. Throws Error(kIo) after `timeout`.
std::string wait_for_attempt(const std::filesystem::path& directory, std::string_view run,
                             std::chrono::milliseconds timeout,
                             const std::function<bool(const std::string&)>& took_part,
                             const std::function<void()>& watch, io::FileOps& ops);

}  // namespace weightstore::sharded
