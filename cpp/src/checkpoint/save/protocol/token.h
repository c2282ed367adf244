#pragma once

// How a shard finds the save that shard 0 has begun. The rules are at the top of protocol.cc.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/save/protocol/lease.h"
#include "io/file_ops.h"

namespace weightstore::checkpoint {

// What a shard knows about the save that its caller wants to make, before it hears from shard 0.
struct ExpectedSave {
  std::string attempt;  // SaveOptions::attempt; empty when none was given
  std::string run;      // SaveOptions::run
  // Without an attempt: the number of this save in its process, from 1, and how many saves before it did not succeed.
  std::uint64_t count = 0;
  std::uint64_t missed = 0;
  // SaveHistory::process_id() of the shard 0 that this shard has joined: in this call of save(), and without an attempt
  // also in earlier ones. Empty when the shard has joined none.
  std::string leader;

  // The caller guarantees that attempt and run together name one save. Then shards need no token of shard 0.
  bool names_session() const { return !attempt.empty() && !run.empty(); }
};

// The session of a save for which names_session() is true.
std::string named_session(const ExpectedSave& expected);

// What shard 0 publishes about the save that it has begun.
struct Token {
  std::string session;  // a random id, new for every call of save() on shard 0
  std::string attempt;  // names the files of the save
  bool given = false;   // the caller gave the attempt; otherwise shard 0 made it up
  std::string run;
  std::string process;      // SaveHistory::process_id() of shard 0
  std::uint64_t count = 0;  // ExpectedSave::count and ExpectedSave::missed of shard 0
  std::uint64_t missed = 0;
};

std::string encode_token(const Token& token);
// nullopt for text that encode_token() does not write, such as a token of another version.
std::optional<Token> decode_token(std::string_view text);

enum class JoinDecision : std::uint8_t {
  kJoin,    // this is the expected save
  kWait,    // this is another save; the expected one may still begin
  kRefuse,  // the expected save is over, or cannot be recognised any more
};

// What a shard does when it finds this token of a living shard 0.
JoinDecision decide_join(const Token& token, const ExpectedSave& expected);

// Shard 0 publishes the token. The others see it until the lease is destroyed.
Lease publish_token(const std::filesystem::path& directory, const Token& token, io::FileOps& ops);

// A token of a living shard 0 that the shard joins or refuses.
struct FoundToken {
  Token token;
  std::string refusal;  // why the shard does not join; empty when it joins
};

// Waits for a token that the shard joins or refuses. Calls `watch` between two looks, which may throw. Throws
// Error(kIo) with ETIMEDOUT after `timeout`.
FoundToken wait_for_token(const std::filesystem::path& directory, const ExpectedSave& expected,
                          std::chrono::milliseconds timeout, const std::function<void()>& watch, io::FileOps& ops);

// How long to sleep between two looks: short at first, because shards that run together are milliseconds apart.
class PollInterval {
 public:
  std::chrono::milliseconds next();

 private:
  std::chrono::milliseconds next_{1};
};

}  // namespace weightstore::checkpoint
