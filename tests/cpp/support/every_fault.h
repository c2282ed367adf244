#pragma once

// Runs an operation again and again, and lets another one of its system calls fail in each run.

#include <cerrno>
#include <cstdint>
#include <functional>
#include <string_view>

#include "check.h"
#include "directory_listing.h"
#include "faulty_file_ops.h"
#include "weightstore/error.h"

namespace faulty {

inline constexpr int kShort = 0;  // in place of an errno: a short read or write

// Runs `operation` with the n-th call failing for n = 1, 2, ... until a run makes fewer calls than that. The operation
// may succeed; if it fails, the error must have the injected errno and name a file. Signals and short counts are no
// reason to fail. No run may leave a descriptor or a mapping behind. `check` looks at the state after each run, and is
// told whether the operation succeeded. Returns how many runs had a fault.
inline std::uint64_t for_every_fault(int error, const std::function<void(weightstore::io::FileOps&)>& operation,
                                     const std::function<void(bool succeeded)>& check) {
  for (std::uint64_t n = 1;; ++n) {
    const std::size_t descriptors = directory_listing::open_descriptors();
    FaultyFileOps ops({.at = n, .kind = {}, .error = error});
    bool succeeded = false;
    try {
      operation(ops);
      succeeded = true;
    } catch (const weightstore::Error& thrown) {
      CHECK(thrown.code() == weightstore::ErrorCode::kIo);
      CHECK_EQ(thrown.os_errno(), error);
      CHECK(!thrown.path().empty());
      CHECK(error != EINTR && error != kShort);
    }
    CHECK_EQ(directory_listing::open_descriptors(), descriptors);
    CHECK_EQ(ops.mappings(), 0);
    check(succeeded);
    if (ops.injected() == 0) {
      CHECK(succeeded);
      return n - 1;
    }
  }
}

// Lets a save replace what is there, with the n-th call failing for n = 1, 2, ... until a save makes fewer calls than
// that. After each failure the scene holds the old model or the new one, whole, and the next save succeeds; an error
// that says "unchanged" tells the truth. Returns how many runs had a fault. A scene has set_up(), save(ops), is_new(),
// which checks that one of the two is there, and check_next_save().
template <class Scene>
std::uint64_t replace_with_every_fault(const Scene& scene, int error) {
  for (std::uint64_t n = 1;; ++n) {
    scene.set_up();
    const std::size_t descriptors = directory_listing::open_descriptors();
    FaultyFileOps ops({.at = n, .kind = {}, .error = error});
    bool succeeded = false;
    bool unchanged = false;
    try {
      scene.save(ops);
      succeeded = true;
    } catch (const weightstore::Error& thrown) {
      CHECK_EQ(thrown.os_errno(), error);
      CHECK(!thrown.path().empty());
      CHECK(error != EINTR && error != kShort);
      unchanged = std::string_view(thrown.what()).find("unchanged") != std::string_view::npos;
    }
    CHECK_EQ(directory_listing::open_descriptors(), descriptors);
    const bool is_new = scene.is_new();
    CHECK(!succeeded || is_new);
    CHECK(!unchanged || !is_new);
    if (ops.injected() == 0) {
      CHECK(succeeded);
      return n - 1;
    }
    scene.check_next_save();
  }
}

}  // namespace faulty
