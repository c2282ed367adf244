#include "checkpoint/find_model.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/layouts.h"
#include "checkpoint/save_names.h"
#include "file/shard_journal.h"
#include "file/shard_names.h"
#include "formats/registry.h"
#include "io/checked_io.h"
#include "io/paths.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

using Kind = DirectoryModel::Kind;
using Names = std::vector<std::string>;

// The names under which Hugging Face's libraries save a model in one file, the one they prefer first.
constexpr std::string_view kUsualFiles[] = {"model.safetensors", "pytorch_model.bin"};
constexpr std::string_view kIndexEndings[] = {kIndexSuffix, ".bin.index.json"};
constexpr std::size_t kNamesShown = 8;

bool contains(const Names& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name);
}

bool is_index(const Names& names, const std::string& name) {
  // RecIS's name alone says little.
  if (name == kRecisIndex) return contains(names, kRecisKeys);
  return std::any_of(std::begin(kIndexEndings), std::end(kIndexEndings),
                     [&](std::string_view ending) { return name.size() > ending.size() && name.ends_with(ending); });
}

bool has_ending_of_format(std::string_view name) {
  for (const FormatSpec* spec : all_formats()) {
    for (const std::string_view ending : spec->endings) {
      if (name.size() > ending.size() && name.ends_with(ending)) return true;
    }
  }
  return false;
}

// "'a', 'b' and 3 more"
std::string shown(const Names& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    text += (i == 0 ? "'" : ", '") + printable(names[i]) + "'";
  }
  if (names.size() > kNamesShown) text += " and " + std::to_string(names.size() - kNamesShown) + " more";
  return text;
}

[[noreturn]] void refuse_several(const Names& models, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "the directory has " + std::to_string(models.size()) + " " + what + ": " +
                                               shown(models) + "; open one of them by its own path");
}

// The directory has no model. ENOENT makes the error a FileNotFoundError.
[[noreturn]] void refuse_missing(const std::string& message) {
  throw Error(ErrorCode::kIo, message).equivalent_errno(ENOENT);
}

// The shards of a set, in order, if `files` are shards and nothing else.
std::optional<Names> shards_in(const Names& files) {
  const auto set = set_of_shard(files.front());
  if (!set) return std::nullopt;
  const auto of_other_set = [&](const std::string& name) { return set_of_shard(name) != set; };
  if (std::any_of(files.begin(), files.end(), of_other_set)) return std::nullopt;
  Names shards;
  for (std::size_t number = 1; number <= set->count; ++number) {
    shards.push_back(usual_shard_name(set->stem, number, set->count));
    if (contains(files, shards.back())) continue;
    refuse_missing("there is no index, and of the " + std::to_string(set->count) + " shards the directory has only " +
                   std::to_string(files.size()) + ": '" + printable(shards.back()) + "' is missing");
  }
  return shards;
}

// What the names tell. The paths of the result are names.
DirectoryModel model_in(const Names& all, SeveralIndexes several) {
  Names names = all;
  std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
  Names indexes;
  std::copy_if(names.begin(), names.end(), std::back_inserter(indexes),
               [&](const std::string& name) { return is_index(names, name); });
  if (several == SeveralIndexes::kPreferPlain && contains(indexes, kPlainIndex)) indexes = {kPlainIndex};
  if (indexes.size() > 1) refuse_several(indexes, "indexes");
  if (indexes.size() == 1) return {indexes[0] == kRecisIndex ? Kind::kRecis : Kind::kFile, {indexes[0]}};
  for (const std::string_view name : kUsualFiles) {
    if (contains(names, name)) return {Kind::kFile, {name}};
  }
  for (const std::string& name : all) {
    if (attempt_of_name(name) || is_journal_name(name)) {
      refuse_missing("the checkpoint is not complete: a save began and has not ended, there is no index");
    }
  }
  Names files;
  std::copy_if(names.begin(), names.end(), std::back_inserter(files), has_ending_of_format);
  if (files.size() == 1 && !set_of_shard(files[0])) return {Kind::kFile, {files[0]}};
  if (files.empty()) {
    refuse_missing("holds no checkpoint and no model: neither an index such as " + std::string(kPlainIndex) +
                   ", nor a file of weights" +
                   (names.empty() ? std::string("; it is empty") : "; it has " + shown(names)));
  }
  if (const auto shards = shards_in(files)) return {Kind::kShards, {shards->begin(), shards->end()}};
  refuse_several(files, "files of weights and no index");
}

}  // namespace

DirectoryModel find_model(const std::filesystem::path& directory, SeveralIndexes several, io::FileOps& ops) try {
  Names names = io::list_directory(directory, ops);
  std::sort(names.begin(), names.end());
  DirectoryModel model = model_in(names, several);
  for (std::filesystem::path& path : model.paths) path = directory / path;
  return model;
} catch (Error& error) {
  throw error.in_file(directory.native());
}

}  // namespace weightstore::checkpoint
