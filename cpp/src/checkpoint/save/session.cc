// The rule that keeps parts of different saves apart:
//
//   A save has a session. Shard 0 uses a part only when the part's record names the session of the save that shard 0 is
//   in. A shard learns the session only after its own save() was called, and only for the save that it came for.
//
// So no clock and no process start matters, and whatever an earlier save or run left is never used: its records name
// other sessions.
//
// Where the session comes from:
//
//  1. `attempt` and `run` were both given: the caller vouches that the pair names one save, and the pair is the
//  session.
//     A process group ends up here: its ranks agree on a random pair for every save.
//  2. Otherwise shard 0 makes a random session in every call of save(), and publishes it in a token. Randomness comes
//     from the kernel, so that forked processes never make the same. The other shards wait for the token.
//
// Which token a shard joins (answer_to):
//
//  3. The token must come from a living shard 0 of the same run. A dead one would make the shard report success to
//     nobody; it can never cause a mixture.
//  4. With an attempt: the token must name this attempt. The caller gives every save of a run its own attempt. Once a
//     shard has joined, it stays with that process of shard 0 until its save() returns.
//  5. Without an attempt: shard 0's save and the shard's save must have the same number, counted by both processes from
//     their start or fork; the process of shard 0 must be the one that the shard has joined before; and all earlier
//     saves of both must have succeeded, because after a failure one program tries again and another goes on. A shard
//     that is ahead waits. In all other cases nobody could tell which save the part belongs to: the shard refuses, and
//     advises to pass an attempt.
//
// A shard looks for the token twice: before it writes data, because shard 0 removes the files of other attempts when it
// begins; and again before it writes its record, because shard 0 may have begun the same attempt anew meanwhile. The
// record names the session of the second look.

#include "checkpoint/save/session.h"

#include <algorithm>
#include <cerrno>

#include "checkpoint/attempt.h"
#include "checkpoint/shard_record.h"
#include "codec/json.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

constexpr int kVersion = 1;
constexpr auto kLongestSleep = std::chrono::milliseconds(20);
constexpr const char* kAdvice = "; pass the same `attempt` on all shards, such as the step";

// Why answer_to() refused.
std::string reason(const Token& token, const SaveClaim& claim) {
  if (!claim.attempt.empty() && token.process != claim.leader) {
    return "shard 0 was restarted before this shard had written its part of the save '" + claim.attempt + "'";
  }
  if (!claim.attempt.empty()) {
    return "shard 0 gave up the save '" + claim.attempt + "' and began '" + printable(token.attempt) +
           "' before this shard had written its part";
  }
  if (!claim.leader.empty() && token.process != claim.leader) {
    return "this shard has saved with another process of shard 0, so shard 0 was restarted and this shard was not" +
           std::string(kAdvice);
  }
  if (claim.missed > 0 || token.missed > 0) {
    return std::string("an earlier save of ") + (claim.missed > 0 ? "this shard" : "shard 0") +
           " into this directory failed, so it cannot be told which save this part belongs to" + kAdvice;
  }
  return "this is save number " + std::to_string(claim.count) + " of this shard, but shard 0 is at number " +
         std::to_string(token.count) + ", so this part may belong to another save" + kAdvice;
}

std::string expected(const SaveClaim& claim) {
  return claim.attempt.empty() ? "save number " + std::to_string(claim.count)
                               : "the save '" + printable(claim.attempt) + "'";
}

// What the token says that the shard did not join; for the message after a timeout.
std::string found(const Token& token, const SaveClaim& claim) {
  if (token.run != claim.run) return "; shard 0 of another run ('" + printable(token.run) + "') saves here";
  if (token.given) return "; shard 0 is in the save '" + printable(token.attempt) + "'";
  return "; shard 0 is in save number " + std::to_string(token.count) + ", without an `attempt`";
}

// Recognises a living owner: by its lock, or by a heartbeat between two looks.
class SignsOfLife {
 public:
  bool in(const HeldText& now) {
    const bool beats = now.text == last_.text && now.beat != last_.beat;
    last_ = now;
    return now.locked || beats;
  }

 private:
  HeldText last_;
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

Answer answer_to(const Token& token, const SaveClaim& claim) {
  if (token.run != claim.run || token.given == claim.attempt.empty()) return Answer::kWait;
  if (!claim.leader.empty() && token.process != claim.leader) return Answer::kRefuse;
  if (!token.given) {
    if (token.count < claim.count) return Answer::kWait;  // perhaps the save to which this shard gave its last part
    return token.count == claim.count && token.missed == 0 && claim.missed == 0 ? Answer::kJoin : Answer::kRefuse;
  }
  if (token.attempt == claim.attempt) return Answer::kJoin;
  // A shard that has joined this attempt sees shard 0 go on to the next one.
  return claim.leader.empty() ? Answer::kWait : Answer::kRefuse;
}

std::string named_session(const SaveClaim& claim) { return "run " + claim.run; }

HeldFile publish_token(const std::filesystem::path& directory, const Token& token, io::FileOps& ops) {
  return HeldFile::publish(directory / kToken, encode_token(token), ops);
}

Answered wait_for_token(const std::filesystem::path& directory, const SaveClaim& claim,
                        std::chrono::milliseconds timeout, const std::function<void()>& watch, io::FileOps& ops) {
  const auto deadline = ops.now() + timeout;
  SignsOfLife signs;
  PollInterval interval;
  std::string other;
  while (true) {
    // Before the look, so that a token that came in time is seen.
    const bool late = ops.now() >= deadline;
    const auto held = look_at_held_file(directory / kToken, ops);
    const auto token = held && signs.in(*held) ? decode_token(held->text) : std::nullopt;
    if (token) {
      const Answer answer = answer_to(*token, claim);
      if (answer != Answer::kWait) return {*token, answer == Answer::kRefuse ? reason(*token, claim) : ""};
      other = found(*token, claim);
    }
    if (watch) watch();
    if (late) {
      throw Error(ErrorCode::kIo,
                  "shard 0 did not begin " + expected(claim) + " here within " + std::to_string(timeout.count()) +
                      " ms" + other +
                      "; start shard 0, or, where the shards run one after another, pass the same `attempt` and the "
                      "same `run` on all of them")
          .in_file(directory.native())
          .with_errno(ETIMEDOUT);
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
