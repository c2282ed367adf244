// One file replaces a set of shards under the same name while every call to the system fails once, and while the
// process is killed before every call to the system. Whatever happens, the file or the set is there, whole; files of
// others stay; and the next save leaves nothing behind but what it wrote.

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "check.h"
#include "directory_listing.h"
#include "every_fault.h"
#include "killing_file_ops.h"
#include "shard_models.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

using namespace weightstore;
using directory_listing::names_in;
using killing::dies_at;
using shard_models::kIndex;
using shard_models::Model;
using test_files::read_file;
using test_files::TempDir;
using test_files::write_file;

namespace {

using Files = std::map<std::string, std::string>;

// A set that is replaced by one file, under one name, and how the directory may look afterwards.
class OneFileScene {
 public:
  OneFileScene(bool names_with_id, bool durable, bool next_is_set)
      : names_with_id_(names_with_id), durable_(durable), next_is_set_(next_is_set) {}

  void set_up() const {
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) std::filesystem::remove(entry.path());
    for (const auto& [name, text] : foreign_) write_file(dir_ / name, text);
    for (int i = 0; i < (names_with_id_ ? 2 : 1); ++i) save_as(old_, 100, false, io::system_file_ops());
  }

  void save(io::FileOps& ops) const { save_as(new_, 1000, durable_, ops); }

  // Whether the one file is there; the set is whole, or has no index.
  bool is_new() const {
    const bool has_file = std::filesystem::exists(path());
    if (has_file) new_.check(Reader::open(path()));
    if (has_set()) old_.check(Reader::open(dir_ / kIndex));
    CHECK(has_file || has_set());
    return has_file;
  }
  bool has_set() const { return std::filesystem::exists(dir_ / kIndex); }

  void check_next_save() const {
    const Model next(4, 100, 7);
    save_as(next, next_is_set_ ? 100 : 1000, false, io::system_file_ops());
    next.check(Reader::open(next_is_set_ ? dir_ / kIndex : path()));
    check_no_leftovers(next_is_set_ ? 5 : 1);
  }

  void check_no_leftovers(std::size_t files) const {
    for (const auto& [name, text] : foreign_) CHECK_EQ(read_file(dir_ / name), text);
    if (names_in(dir_.path()).size() == foreign_.size() + files) return;
    for (const std::string& name : names_in(dir_.path())) std::fprintf(stderr, "there is %s\n", name.c_str());
    CHECK(false);
  }

 private:
  std::filesystem::path path() const { return dir_ / "model.safetensors"; }
  void save_as(const Model& model, std::uint64_t max_shard_bytes, bool durable, io::FileOps& ops) const {
    WriteOptions options;
    options.durable = durable;
    const io::FileOpsScope scope(ops);
    model.writer.write_file_or_shards(path(), max_shard_bytes, options);
  }

  const bool names_with_id_;
  const bool durable_;
  const bool next_is_set_;
  const Files foreign_{{"config.json", "{}"}, {"model-00001-of-00007.safetensors", "theirs"}};
  const TempDir dir_{test_files::in_memory()};  // thousands of saves
  const Model old_{3, 100, 1};
  const Model new_{2, 100, 50};
};

void for_every_one_file_scene(const std::function<void(const OneFileScene&)>& body) {
  for (const bool names_with_id : {false, true}) {
    for (const bool next_is_set : {false, true}) body(OneFileScene(names_with_id, false, next_is_set));
  }
  body(OneFileScene(false, true, false));
}

}  // namespace

TEST(a_process_is_killed_before_every_call_while_one_file_replaces_a_set) {
  for_every_one_file_scene([](const OneFileScene& scene) {
    std::uint64_t n = 1;
    for (;; ++n) {
      scene.set_up();
      const bool died = dies_at(n, [&](io::FileOps& ops) { scene.save(ops); });
      const bool is_new = scene.is_new();
      if (!died) {
        CHECK(is_new && !scene.has_set());
        break;
      }
      scene.check_next_save();
    }
    CHECK(n > 15);
    scene.check_no_leftovers(1);
  });
}

TEST(every_call_fails_once_while_one_file_replaces_a_set) {
  for_every_one_file_scene([](const OneFileScene& scene) {
    CHECK(faulty::replace_with_every_fault(scene, EIO) > 15);
    CHECK(!scene.has_set());
    scene.check_no_leftovers(1);
  });
}
