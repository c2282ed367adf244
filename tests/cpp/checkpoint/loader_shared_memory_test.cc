// Targets of a load that share memory: loaded when the checkpoint agrees about it, refused when it does not.

#include <string>

#include "check.h"
#include "saver_files.h"
#include "weightstore/error.h"

using namespace weightstore;
using namespace saver_files;
using test_files::TempDir;

namespace {

using Saved = std::vector<std::pair<std::string, std::string>>;  // name and bytes

// A checkpoint, and a loader into parts of one memory.
struct Fixture {
  explicit Fixture(const Saved& saved, std::size_t size) : memory(size, '-') {
    std::vector<NewTensor> tensors;
    for (const auto& [name, bytes] : saved) tensors.push_back(dense(name, DType::kU8, {bytes.size()}, bytes));
    SaveOptions options;
    options.durable = false;
    Saver saver(0, 1, 2, dir.path());
    saver.configure(options);
    saver.save(saver.make_write_blocks({}, std::move(tensors)));
  }

  LoadTarget at(std::string name, std::size_t begin, std::size_t size) {
    return {std::move(name), DType::kU8, {size}, std::as_writable_bytes(std::span(memory)).subspan(begin, size)};
  }

  std::vector<std::string> load(std::vector<LoadTarget> targets, std::string info = "", LoadOptions options = {}) {
    Loader loader(dir.path(), 3, {}, std::move(targets));
    loader.configure(options);
    return loader.load(info.empty() ? loader.default_load_info() : info);
  }

  TempDir dir;
  std::string memory;
};

}  // namespace

TEST(tied_targets_with_equal_values) {
  Fixture fixture({{"emb", "abcdef"}, {"head", "abcdef"}, {"other", "xy"}}, 8);
  std::vector<std::uint64_t> totals;
  LoadOptions options;
  options.progress = [&](std::uint64_t done, std::uint64_t total, std::string_view) {
    CHECK(done <= total);
    totals.push_back(total);
    return true;
  };
  const auto loaded =
      fixture.load({fixture.at("emb", 0, 6), fixture.at("head", 0, 6), fixture.at("other", 6, 2)}, "", options);
  CHECK(loaded == (std::vector<std::string>{"emb", "head", "other"}));
  CHECK_EQ(fixture.memory, "abcdefxy");
  CHECK_EQ(totals.back(), std::uint64_t{8});  // what is shared is read once
}

TEST(overlapping_targets_with_equal_values) {
  // c lies inside of both, d follows on e, f is the whole.
  Fixture fixture({{"a", "abcdef"}, {"b", "efghij"}, {"c", "ef"}, {"d", "jk"}, {"f", "abcdefghijkl"}}, 12);
  fixture.load({fixture.at("a", 0, 6), fixture.at("b", 4, 6), fixture.at("c", 4, 2), fixture.at("d", 9, 2)},
               R"({"a": {"a": []}, "b": {"b": []}, "c": {"c": []}, "d": {"d": []}})", {false, Verify::kOff, {}});
  CHECK_EQ(fixture.memory, "abcdefghijk-");
  fixture.memory.assign(12, '-');
  fixture.load({fixture.at("a", 0, 6), fixture.at("b", 4, 6), fixture.at("c", 4, 2), fixture.at("d", 9, 2),
                fixture.at("f", 0, 12)});
  CHECK_EQ(fixture.memory, "abcdefghijkl");
}

TEST(different_values_are_refused_before_anything_changes) {
  const std::string large(3 << 20, 'a');
  std::string other = large;
  other.back() = 'b';  // in the last of several chunks
  Fixture fixture({{"emb", large}, {"head", other}, {"w", "w"}}, large.size() + 1);
  const std::string before = fixture.memory;
  const auto targets = [&] {
    return std::vector<LoadTarget>{fixture.at("emb", 0, large.size()), fixture.at("head", 0, large.size()),
                                   fixture.at("w", large.size(), 1)};
  };
  const Error error = CHECK_THROWS(Error, fixture.load(targets()));
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK_EQ(error.tensor(), "head");
  CHECK(std::string(error.what()).find("shares memory with 'emb'") != std::string::npos);
  CHECK(fixture.memory == before);
  // One of them may be loaded, or both from one source.
  const auto loaded = fixture.load(targets(), R"({"head": {"head": []}, "w": {"w": []}})");
  CHECK(loaded == (std::vector<std::string>{"head", "w"}));
  CHECK(fixture.memory == other + "w");
  fixture.load(targets(), R"({"emb": {"emb": []}, "head": {"emb": []}})", {false, Verify::kOff, {}});
  CHECK(fixture.memory == large + "w");
}

TEST(a_part_of_another_target_with_different_values) {
  Fixture fixture({{"whole", "abcdef"}, {"tail", "eX"}, {"inner", "bX"}, {"next", "fX"}}, 8);
  for (const auto& [name, begin] : {std::pair("tail", 4), std::pair("inner", 1)}) {
    const Error error = CHECK_THROWS(
        Error, fixture.load({fixture.at("whole", 0, 6), fixture.at(name, static_cast<std::size_t>(begin), 2)}, "",
                            {false, Verify::kOff, {}}));
    CHECK_EQ(error.tensor(), name);
    CHECK_EQ(fixture.memory, "--------");
  }
  fixture.load({fixture.at("whole", 0, 6), fixture.at("next", 5, 2)}, "", {false, Verify::kOff, {}});
  CHECK_EQ(fixture.memory, "abcdefX-");
}

TEST(memory_that_is_not_there) {
  Fixture fixture({{"w", "ab"}}, 2);
  const LoadTarget null{"w", DType::kU8, {2}, {static_cast<std::byte*>(nullptr), 2}};
  const Error error = CHECK_THROWS(Error, fixture.load({null}));
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK_EQ(error.tensor(), "w");
  CHECK_THROWS(Error, Loader(fixture.dir.path(), 1, {nullptr}, {}));
}

RUN_TESTS()
