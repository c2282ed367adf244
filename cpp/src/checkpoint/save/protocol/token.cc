#include "checkpoint/save/protocol/token.h"

#include <algorithm>
#include <cerrno>

#include "checkpoint/save_names.h"
#include "checkpoint/shard_record.h"
#include "codec/json.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

constexpr int kVersion = 1;
constexpr auto kLongestSleep = std::chrono::milliseconds(20);
constexpr const char* kAdvice = "; pass the same `attempt` on all shards, such as the step";

// Why decide_join() refused this token.
std::string reason(const Token& token, const ExpectedSave& expected) {
  if (!expected.attempt.empty() && token.process != expected.leader) {
    return "shard 0 was restarted before this shard had written its part of the save '" + expected.attempt + "'";
  }
  if (!expected.attempt.empty()) {
    return "shard 0 abandoned the save '" + expected.attempt + "' and began '" + printable(token.attempt) +
           "' before this shard had written its part";
  }
  if (!expected.leader.empty() && token.process != expected.leader) {
    return "this shard has saved with another process of shard 0, so shard 0 was restarted and this shard was not" +
           std::string(kAdvice);
  }
  if (expected.missed > 0 || token.missed > 0) {
    return std::string("an earlier save of ") + (expected.missed > 0 ? "this shard" : "shard 0") +
           " into this directory failed, so it cannot be told which save this part belongs to" + kAdvice;
  }
  return "this is save number " + std::to_string(expected.count) + " of this shard, but shard 0 is at number " +
         std::to_string(token.count) + ", so this part may belong to another save" + kAdvice;
}

std::string text_of(const ExpectedSave& expected) {
  return expected.attempt.empty() ? "save number " + std::to_string(expected.count)
                                  : "the save '" + printable(expected.attempt) + "'";
}

// What a token that the shard did not join says; for the message after a timeout.
std::string text_of(const Token& token, const ExpectedSave& expected) {
  if (token.run != expected.run) return "; shard 0 of another run ('" + printable(token.run) + "') saves here";
  if (token.given) return "; shard 0 is in the save '" + printable(token.attempt) + "'";
  return "; shard 0 is in save number " + std::to_string(token.count) + ", without an `attempt`";
}

// Recognises a living owner of a lease: by its lock, or by a heartbeat since the previous look.
class LivenessCheck {
 public:
  bool is_alive(const LeaseState& now) {
    const bool beats = now.text == last_.text && now.heartbeat != last_.heartbeat;
    last_ = now;
    return now.locked || beats;
  }

 private:
  LeaseState last_;
};

}  // namespace

std::string encode_token(const Token& token) {
  return json_encode(Value::Map{{"version", kVersion},
                                {"session", token.session},
                                {"attempt", token.attempt},
                                {"given", token.given},
                                {"run", token.run},
                                {"process", token.process},
                                {"count", token.count},
                                {"missed", token.missed}});
}

std::optional<Token> decode_token(std::string_view text) {
  try {
    const Value value = json_decode(text);
    if (uint_field(value, "version") != kVersion) return std::nullopt;
    Token token;
    token.session = text_field(value, "session");
    token.attempt = text_field(value, "attempt");
    const bool* given = field(value, "given").get_if<bool>();
    if (given == nullptr || !is_attempt(token.attempt)) return std::nullopt;
    token.given = *given;
    token.run = text_field(value, "run");
    token.process = text_field(value, "process");
    token.count = uint_field(value, "count");
    token.missed = uint_field(value, "missed");
    return token;
  } catch (const Error&) {
    return std::nullopt;
  }
}

JoinDecision decide_join(const Token& token, const ExpectedSave& expected) {
  if (token.run != expected.run || token.given == expected.attempt.empty()) return JoinDecision::kWait;
  if (!expected.leader.empty() && token.process != expected.leader) return JoinDecision::kRefuse;
  if (!token.given) {
    if (token.count < expected.count)
      return JoinDecision::kWait;  // perhaps the save for which this shard has written its last part
    return token.count == expected.count && token.missed == 0 && expected.missed == 0 ? JoinDecision::kJoin
                                                                                      : JoinDecision::kRefuse;
  }
  if (token.attempt == expected.attempt) return JoinDecision::kJoin;
  // A shard that has joined this attempt sees shard 0 go on to the next one.
  return expected.leader.empty() ? JoinDecision::kWait : JoinDecision::kRefuse;
}

std::string named_session(const ExpectedSave& expected) { return "run " + expected.run; }

Lease publish_token(const std::filesystem::path& directory, const Token& token, io::FileOps& ops) {
  return Lease::publish(directory / kToken, encode_token(token), ops);
}

FoundToken wait_for_token(const std::filesystem::path& directory, const ExpectedSave& expected,
                          std::chrono::milliseconds timeout, const std::function<void()>& watch, io::FileOps& ops) {
  const auto deadline = ops.now() + timeout;
  LivenessCheck owner;
  PollInterval interval;
  std::string other;
  while (true) {
    // Asked before the look, so that a token that was published in time is seen.
    const bool late = ops.now() >= deadline;
    const auto lease = read_lease(directory / kToken, ops);
    const auto token = lease && owner.is_alive(*lease) ? decode_token(lease->text) : std::nullopt;
    if (token) {
      const JoinDecision decision = decide_join(*token, expected);
      if (decision != JoinDecision::kWait)
        return {*token, decision == JoinDecision::kRefuse ? reason(*token, expected) : ""};
      other = text_of(*token, expected);
    }
    if (watch) watch();
    if (late) {
      throw Error(ErrorCode::kIo,
                  "shard 0 did not begin " + text_of(expected) + " here within " + std::to_string(timeout.count()) +
                      " ms" + other +
                      "; start shard 0, or, where the shards run one after another, pass the same `attempt` and the "
                      "same `run` on all of them")
          .in_file(directory.native())
          .equivalent_errno(ETIMEDOUT);
    }
    ops.pause(interval.next());
  }
}

std::chrono::milliseconds PollInterval::next() {
  const auto now = next_;
  next_ = std::min(next_ * 2, kLongestSleep);
  return now;
}

}  // namespace weightstore::checkpoint
