#pragma once

// Saves of two shards that tests stop, interrupt and compare: each saves one row, whose value names the save.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "io/file_ops.h"
#include "saver_crash.h"
#include "weightstore/error.h"

namespace saver_steps {

using namespace weightstore;
using namespace saver_crash;

// Calls `body` whenever a step of this name is reached.
class AtStep final : public io::FileOps {
 public:
  AtStep(std::string step, std::function<void()> body) : step_(std::move(step)), body_(std::move(body)) {}
  void reached(const char* step) override {
    if (step_ == step) body_();
  }

 private:
  const std::string step_;
  const std::function<void()> body_;
};

// The rows of this table have this value in all places.
inline void save_value(const std::filesystem::path& path, const TestOptions& options, std::int64_t shard, float value) {
  const io::FileOpsScope scope(options.ops());
  Saver saver(shard, 2, 1, path);
  saver.configure(options);
  const auto user = table("user", 1, static_cast<std::uint64_t>(shard), 2);
  user->insert(std::vector<std::int64_t>{shard * 40000}, table_values::bytes_of(std::vector<float>{value}));
  saver.save(saver.make_write_blocks(Tables{user}, {}));
}

inline std::string error_of(const std::function<void()>& body) {
  const Error error = CHECK_THROWS(Error, body());
  return error.what();
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline Rows saved_values(const std::filesystem::path& path) {
  const auto user = table("user", 1, 0, 1);
  const Loader loader(path, 1, {user}, {});
  loader.load(loader.default_load_info());
  return rows_of(*user, 1);
}

}  // namespace saver_steps
