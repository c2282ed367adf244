#pragma once

// Which parts belong to one save. The rule is at the top of session.cc.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/save/held_file.h"
#include "io/file_ops.h"

namespace weightstore::checkpoint {

// What a shard knows about the save that it came for, before it hears from shard 0.
struct SaveClaim {
  std::string attempt;  // SaveOptions::attempt; empty when none was given
  std::string run;      // SaveOptions::run
  // Without an attempt: the number of this save in its process, from 1, and how many of those before it failed.
  std::uint64_t count = 0;
  std::uint64_t missed = 0;
  // The process of shard 0 that this shard has joined: in this call of save(), and without an attempt also before.
  // Empty when the shard has joined none.
  std::string leader;

  // The caller vouches that attempt and run together name one save. Then the session needs no shard 0.
  bool names_session() const { return !attempt.empty() && !run.empty(); }
};

// What shard 0 tells the others about the save that it has begun.
struct Token {
  std::string session;  // a random id, new for every call of save() on shard 0
  std::string attempt;  // names the files of the save
  bool given = false;   // the caller gave the attempt; otherwise shard 0 made it up
  std::string run;
  std::string process;      // ProcessMemory::id() of shard 0
  std::uint64_t count = 0;  // SaveClaim::count and SaveClaim::missed of shard 0
  std::uint64_t missed = 0;
};

std::string encode_token(const Token& token);
// nullopt for anything encode_token() does not write, such as a token of another version.
std::optional<Token> decode_token(std::string_view text);

enum class Answer : std::uint8_t {
  kJoin,    // the save that the shard came for
  kWait,    // another save; the shard's own may still come
  kRefuse,  // the shard's own save is over, or cannot be recognised any more
};

// What a shard does that finds this token of a living shard 0.
Answer answer_to(const Token& token, const SaveClaim& claim);

// The session of a save whose caller vouches for attempt and run.
std::string named_session(const SaveClaim& claim);

// Shard 0 begins a save. The others see it until the file is destroyed.
HeldFile publish_token(const std::filesystem::path& directory, const Token& token, io::FileOps& ops);

// The token of a living shard 0, and what this shard answers.
struct Answered {
  Token token;
  std::string refusal;  // empty when the shard joins; otherwise the reason why it does not
};

// Waits until there is a token that this shard joins or refuses. Calls `watch` meanwhile, which may throw. Throws
// Error(kIo) with ETIMEDOUT after `timeout`.
Answered wait_for_token(const std::filesystem::path& directory, const SaveClaim& claim,
                        std::chrono::milliseconds timeout, const std::function<void()>& watch, io::FileOps& ops);

// How long to sleep between two looks: short at first, because shards that run together are milliseconds apart.
class PollInterval {
 public:
  std::chrono::milliseconds next();

 private:
  std::chrono::milliseconds next_{1};
};

}  // namespace weightstore::checkpoint
