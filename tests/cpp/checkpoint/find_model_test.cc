// Which model a directory holds, by the names in it.

#include "checkpoint/find_model.h"

#include <string>
#include <vector>

#include "check.h"
#include "faulty_file_ops.h"
#include "test_files.h"
#include "weightstore/error.h"

using namespace weightstore;
using checkpoint::DirectoryModel;
using checkpoint::find_model;
using checkpoint::SeveralIndexes;
using Kind = DirectoryModel::Kind;
using Names = std::vector<std::string>;
using test_files::TempDir;

namespace {

constexpr const char* kShard1 = "model-00001-of-00002.safetensors";
constexpr const char* kShard2 = "model-00002-of-00002.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

DirectoryModel found(const Names& names, SeveralIndexes several = SeveralIndexes::kRefuse) {
  const TempDir dir;
  for (const std::string& name : names) test_files::write_file(dir / name, "");
  return find_model(dir.path(), several, io::system_file_ops());
}

Names names_of(const DirectoryModel& model) {
  Names names;
  for (const auto& path : model.paths) names.push_back(path.filename().native());
  return names;
}

// The model is this one file or index.
bool finds(const Names& names, const std::string& file, Kind kind = Kind::kFile) {
  const DirectoryModel model = found(names);
  return model.kind == kind && names_of(model) == Names{file};
}

Error refused(const Names& names) { return CHECK_THROWS(Error, found(names)); }

bool says(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

}  // namespace

TEST(an_index_decides) {
  CHECK(finds({kIndex, kShard1, kShard2, "optimizer.pt", "config.json"}, kIndex));
  CHECK(finds({kIndex, "model.safetensors"}, kIndex));
  CHECK(finds({"diffusion.fp16.safetensors.index.json", "a.safetensors"}, "diffusion.fp16.safetensors.index.json"));
  CHECK(finds({"pytorch_model.bin.index.json", "model.safetensors"}, "pytorch_model.bin.index.json"));
  CHECK(finds({"index", "tensorkey.json", "model-000000-of-000001.safetensors"}, "index", Kind::kRecis));
  CHECK(finds({"index", "model.safetensors"}, "model.safetensors"));
}

TEST(two_indexes_are_refused) {
  for (const Names& names :
       {Names{kIndex, "pytorch_model.bin.index.json", "a.pt"}, Names{kIndex, "index", "tensorkey.json"},
        Names{"a.safetensors.index.json", "b.safetensors.index.json"}}) {
    const Error error = refused(names);
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(says(error, "2 indexes"));
    CHECK(says(error, "'" + names[0] + "'") && says(error, "'" + names[1] + "'"));
    CHECK(says(error, "by its own path"));
  }
}

TEST(a_job_finds_what_it_saved_beside_another_index) {
  const Names names = {kIndex, "pytorch_model.bin.index.json"};
  CHECK_EQ(names_of(found(names, SeveralIndexes::kPreferPlain)), Names{kIndex});
  CHECK_THROWS(Error, found({"a.safetensors.index.json", "b.safetensors.index.json"}, SeveralIndexes::kPreferPlain));
}

TEST(usual_names_come_before_other_files) {
  CHECK(finds({"model.safetensors", "pytorch_model.bin", "optimizer.pt", "x.safetensors"}, "model.safetensors"));
  CHECK(finds({"pytorch_model.bin", "optimizer.pt", "training_args.bin"}, "pytorch_model.bin"));
}

TEST(the_only_file_of_weights) {
  for (const char* name : {"a.safetensors", "a.bpk", "a.pt", "a.pth", "a.npz", "a.npy"}) {
    CHECK(finds({name, "config.json", "README.md", "tokenizer.bin", "._a.safetensors", ".hidden.pt"}, name));
  }
  const Error error = refused({"a.safetensors", "b.pt", "config.json"});
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(says(error, "2 files of weights and no index: 'a.safetensors', 'b.pt'"));
}

TEST(shards_without_an_index) {
  const DirectoryModel model = found({kShard2, kShard1, "config.json"});
  CHECK(model.kind == Kind::kShards);
  CHECK_EQ(names_of(model), (Names{kShard1, kShard2}));
  CHECK(found({"a-00001-of-00001.safetensors"}).kind == Kind::kShards);
}

TEST(shards_that_are_no_set) {
  const Error missing = refused({kShard2, "model-00001-of-00003.txt"});
  CHECK(missing.code() == ErrorCode::kIo && missing.os_errno() == ENOENT);
  CHECK(says(missing, std::string("only 1: '") + kShard1 + "' is missing"));
  // A number of shards that a name makes up costs nothing.
  CHECK(says(refused({"a-00001-of-18446744073709551615.safetensors"}), "is missing"));
  for (const Names& names :
       {Names{kShard1, kShard2, "other.safetensors"}, Names{kShard1, kShard2, "b-00001-of-00001.safetensors"},
        Names{kShard1, "model-00002-of-00003.safetensors"},
        // The data files of RecIS count from 0 and have six digits.
        Names{"model-000000-of-000002.safetensors", "model-000001-of-000002.safetensors"}}) {
    CHECK(says(refused(names), "files of weights and no index"));
  }
  CHECK(finds({"a-00000-of-00001.safetensors"}, "a-00000-of-00001.safetensors"));
}

TEST(incomplete_saves_are_no_models) {
  for (const Names& names :
       {Names{"model-step-1-s00000-f00000.safetensors"}, Names{".weightstore-save.lock", "a.safetensors"},
        Names{kShard1, kShard2, ".model.0123456789abcdef-01234567.weightstore-set"}}) {
    const Error error = refused(names);
    CHECK_EQ(error.os_errno(), ENOENT);
    CHECK(says(error, "not complete"));
  }
}

TEST(directories_without_a_model) {
  const Error empty = refused({});
  CHECK(empty.code() == ErrorCode::kIo && empty.os_errno() == ENOENT);
  CHECK(says(empty, "holds no checkpoint") && says(empty, "it is empty"));
  CHECK(says(refused({"b.json", "a.txt"}), "it has 'a.txt', 'b.json'"));
  Names many;
  for (char letter = 'a'; letter <= 'z'; ++letter) many.push_back(std::string(1, letter));
  CHECK(says(refused(many), "'h' and 18 more"));
  CHECK(says(refused({"a\033[2J"}), "'a\\x1b[2J'"));
}

TEST(a_directory_that_cannot_be_read) {
  const TempDir dir;
  faulty::FaultyFileOps ops({.at = 1, .kind = faulty::Call::kReaddir, .error = EIO});
  CHECK_EQ(CHECK_THROWS(Error, find_model(dir.path(), SeveralIndexes::kRefuse, ops)).os_errno(), EIO);
  CHECK_EQ(CHECK_THROWS(Error, find_model(dir / "none", SeveralIndexes::kRefuse, io::system_file_ops())).os_errno(),
           ENOENT);
}

RUN_TESTS()
