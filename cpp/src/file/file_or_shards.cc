// One file or a set of shards, whichever fits, under one name: the two forms replace each other.
//
// The new form is complete before the old one is removed. In between both are there, each of them whole. Only what was
// there before the save is removed: another save may have put something under the name meanwhile.
//
// One file replaces a set in these steps:
//
//  1. Files that dead saves of the name left are removed (shard_journal.h).
//  2. The file is written, and takes its name. This is the commit.
//  3. A journal names the shards of the set, and is synced.
//  4. The index is removed: the set is gone. Then the shards go, and last the journal.
//
// A process that dies in step 3 leaves the whole set, in step 4 shards that the next save of the name removes.

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "file/shard_journal.h"
#include "file/shard_names.h"
#include "io/atomic_file.h"
#include "io/checked_io.h"
#include "io/file_identity.h"
#include "io/paths.h"
#include "weightstore/error.h"
#include "weightstore/writer.h"

namespace weightstore {
namespace {

constexpr std::string_view kFileSuffix = ".safetensors";

// Removes with `remove` what is at `path`, if it is what was there before the save.
template <class Remove>
void remove_replaced(const std::filesystem::path& path, const io::FileIdentity& before, io::FileOps& ops,
                     Remove remove) {
  if (before == io::FileIdentity() || io::identity_of(io::find_name(path, ops)) != before) return;
  remove();
}

void check_absent(const std::filesystem::path& path, io::FileOps& ops) {
  if (!io::is_there(path, ops)) return;
  throw Error(ErrorCode::kConflict, "the file exists; allow overwriting, or choose another name")
      .in_file(path.native())
      .equivalent_errno(EEXIST);
}

// The shards of the set, or none when not all of its files have names such as we give: then the set is something else,
// such as a checkpoint of Saver.
std::set<std::string> shards_of_set(const ShardSite& site, io::FileOps& ops) {
  try {
    IndexedFiles indexed = read_indexed_files(site, ops);
    const auto is_shard = [&](const std::string& name) { return is_shard_name(site.stem, name); };
    if (std::all_of(indexed.names.begin(), indexed.names.end(), is_shard)) return std::move(indexed.names);
  } catch (const Error&) {
    // An index that cannot be read stays.
  }
  return {};
}

// Step 3. Without a journal the set stays.
void write_journal(ShardJournal& journal, const std::set<std::string>& shards, bool durable) {
  try {
    for (const std::string& name : shards) journal.add_removed(name);
    journal.flush(durable);
  } catch (...) {
    journal.remove();
    throw;
  }
}

// The set is gone with its index. A shard that cannot be removed is left to the next save, with the journal.
void remove_set(const ShardSite& site, bool durable, io::FileOps& ops) {
  const std::set<std::string> shards = shards_of_set(site, ops);
  if (shards.empty()) return;
  std::optional<ShardJournal> journal;
  try {
    write_journal(journal.emplace(site, ops), shards, durable);
  } catch (const Error& error) {
    throw Error(error.code(), "the new file is complete, but the set of shards that it replaces is still there: " +
                                  std::string(error.what()))
        .in_file(site.index.native())
        .equivalent_errno(error.os_errno());
  }
  io::remove_name(site.index.native(), durable, ops);
  journal->release();
  settle_journals(site, journal->id(), ops);
}

// Before anything is written: the journal must have a name, should there be a set to remove.
void check_set(const std::filesystem::path& index_path, const io::FileIdentity& set) {
  if (set != io::FileIdentity()) check_stem(site_of_index(index_path).stem, 1);
}

// There is no set whose index is called just ".safetensors.index.json".
void settle_journals_of(const std::filesystem::path& index_path, io::FileOps& ops) {
  if (index_path.filename().native() != kIndexSuffix) settle_journals(site_of_index(index_path), "", ops);
}

}  // namespace

std::vector<std::string> Writer::write_file_or_shards(const std::filesystem::path& path, std::uint64_t max_shard_bytes,
                                                      const WriteOptions& options) const try {
  io::FileOps& ops = io::current_file_ops();
  std::string base = path.native();
  if (base.ends_with(kFileSuffix)) base.resize(base.size() - kFileSuffix.size());
  const std::filesystem::path index_path = base + std::string(kIndexSuffix);
  std::uint64_t total = 0;
  for (const NewTensor& tensor : tensors()) total += tensor.bytes->size();

  if (total <= max_shard_bytes) {
    if (!options.overwrite) check_absent(index_path, ops);
    const io::FileIdentity set = io::identity_of(io::find_name(index_path, ops));
    check_set(index_path, set);
    settle_journals_of(index_path, ops);
    write_file(path, Format::kSafetensors, options);
    remove_replaced(index_path, set, ops, [&] { remove_set(site_of_index(index_path), options.durable, ops); });
    return {};
  }
  if (!options.overwrite) check_absent(path, ops);
  if (io::is_directory(path, ops)) {
    throw Error(ErrorCode::kIo, "this is a directory; give the path of a file inside it")
        .in_file(path.native())
        .equivalent_errno(EISDIR);
  }
  const io::FileIdentity file = io::identity_of(io::find_name(path, ops));
  const std::vector<std::string> names = write_shards(index_path, max_shard_bytes, options);
  remove_replaced(path, file, ops, [&] { io::remove_name(path.native(), options.durable, ops); });
  return names;
} catch (Error& error) {
  error.in_file(path.string()).of_format(Format::kSafetensors);
  throw;
}

}  // namespace weightstore
