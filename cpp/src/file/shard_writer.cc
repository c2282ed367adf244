// A set of shards and its index. The index is what makes a set, so replacing the index replaces the set: at every
// instant a reader finds the old set or the new one, whole.
//
//  1. The journal is created (shard_journal.h). Files that dead saves of this set left are removed.
//  2. Every shard is written, synced and closed under a name with the id of this save, which no other set uses.
//  3. If there is no set to replace, the shards get their usual names; if a usual name is taken, they keep the id.
//  4. The directory is synced, so that the names of the shards are safe before the index is.
//  5. The new index is written, synced and renamed over the old one. This is the commit.
//  6. The old shards are removed: those that the old index names, if their names are such as we give.
//
// A failure before the commit removes the new shards and leaves the old set. A failure in step 6 is no error: the new
// set is complete, and the next save of the set removes the files, because the journal stays.

#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "file/shard_journal.h"
#include "file/shard_names.h"
#include "file/write_plan.h"
#include "io/atomic_file.h"
#include "io/checked_io.h"
#include "io/new_file.h"
#include "io/paths.h"
#include "io/progress_meter.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"
#include "weightstore/writer.h"

namespace weightstore {
namespace {

// Tensors a shard, in the order of addition: a shard is closed when the next tensor would not fit.
std::vector<Writer> split(const std::vector<NewTensor>& tensors, std::uint64_t max_shard_bytes) {
  std::vector<Writer> shards(1);
  std::uint64_t used = 0;
  for (const NewTensor& tensor : tensors) {
    const auto sum = checked_add(used, tensor.bytes->size());
    if (!shards.back().tensors().empty() && (!sum || *sum > max_shard_bytes)) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().add(tensor);
    used += tensor.bytes->size();
  }
  return shards;
}

std::uint64_t data_bytes(const std::vector<NewTensor>& tensors) {
  std::uint64_t total = 0;
  for (const NewTensor& tensor : tensors) total += tensor.bytes->size();
  return total;
}

// The caller's metadata, without checksums that came with it when the shards get their own.
TextMap index_metadata(const std::optional<TextMap>& metadata, bool checksums) {
  TextMap result;
  for (std::size_t i = 0; metadata && i < metadata->size(); ++i) {
    if (checksums && metadata->key(i) == kChecksumKey) continue;
    result.add(metadata->key(i), metadata->value(i));
  }
  return result;
}

// The shards of the set that `indexed` describes, as far as their names are such as we give.
std::vector<std::string> own_shards(const IndexedFiles& indexed, const ShardSite& site) {
  std::vector<std::string> names;
  for (const std::string& name : indexed.names) {
    if (is_shard_name(site.stem, name)) names.push_back(name);
  }
  return names;
}

// The new shards look to others as the first of the old ones does.
std::optional<io::FilePattern> pattern_of(const std::vector<std::string>& old_shards, const ShardSite& site,
                                          io::FileOps& ops) {
  for (const std::string& name : old_shards) {
    const auto status = io::find_name(site.path_of(name), ops);
    if (status && S_ISREG(status->st_mode)) return io::FilePattern{site.path_of(name), *status};
  }
  return std::nullopt;
}

// The shards of one save. Destroyed before keep(), they are removed.
class NewShards {
 public:
  NewShards(const ShardSite& site, std::size_t count, io::FileOps& ops) : site_(site), ops_(ops), journal_(site, ops) {
    for (std::size_t i = 0; i < count; ++i) {
      names_.push_back(fresh_shard_name(site.stem, journal_.id(), i + 1, count));
      journal_.add_made(names_.back());
    }
    try {
      journal_.flush(false);
    } catch (...) {
      journal_.remove();
      throw;
    }
  }

  ~NewShards() {
    if (kept_) return;
    bool removed = true;
    for (const std::string& name : names_) {
      removed &= ops_.unlink(site_.path_of(name).c_str()) == 0 || errno == ENOENT;
    }
    // Otherwise the next save finds the journal and tries again.
    if (removed) journal_.remove();
    settle_journals(site_, "", ops_);  // a save that ended meanwhile may have left its journal to this one
  }
  NewShards(const NewShards&) = delete;
  NewShards& operator=(const NewShards&) = delete;

  const std::vector<std::string>& names() const { return names_; }
  ShardJournal& journal() { return journal_; }

  // Gives all shards their usual names. If one is taken, the shards keep the names that they have and the result is the
  // name that is taken; else it is empty.
  std::string take_usual_names() {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const std::string usual = usual_shard_name(site_.stem, i + 1, names_.size());
      if (rename(i, usual)) continue;
      while (i-- > 0) {
        if (!rename(i, fresh_shard_name(site_.stem, journal_.id(), i + 1, names_.size()))) throw rename_error(i);
      }
      return usual;
    }
    return "";
  }

  // The index names the shards now, or may do so after a power failure.
  void keep() { kept_ = true; }

 private:
  // False when the name is taken.
  bool rename(std::size_t i, const std::string& name) {
    const std::string from = site_.path_of(names_[i]);
    const std::string to = site_.path_of(name);
    if (io::retry_interrupted([&] { return ops_.rename_new(from.c_str(), to.c_str()); }) != 0) {
      if (errno == EEXIST) return false;
      throw rename_error(i);
    }
    names_[i] = name;
    return true;
  }

  Error rename_error(std::size_t i) const {
    return io::io_error(errno, "cannot give the new shard its name; what was there before is unchanged",
                        site_.path_of(names_[i]));
  }

  const ShardSite& site_;
  io::FileOps& ops_;
  ShardJournal journal_;
  std::vector<std::string> names_;
  bool kept_ = false;
};

Error taken(const ShardSite& site, const std::string& name) {
  return Error(ErrorCode::kConflict, "the file exists; allow overwriting, or choose another name")
      .in_file(site.path_of(name))
      .equivalent_errno(EEXIST);
}

// Before anything is written, when nothing may be overwritten.
void check_usual_names(const ShardSite& site, std::size_t count, io::FileOps& ops) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = usual_shard_name(site.stem, i + 1, count);
    if (io::is_there(site.path_of(name), ops)) throw taken(site, name);
  }
}

// Step 2: writes the shards under their new names, with one scale of progress over all of them.
void write_each(const Writer& model, const std::vector<Writer>& shards, NewShards& files, const ShardSite& site,
                const WriteOptions& options, io::FileOps& ops) {
  const auto like = pattern_of(own_shards(read_indexed_files(site, ops), site), site, ops);
  io::ProgressMeter meter(options.progress, data_bytes(model.tensors()), "writing was cancelled");
  for (std::size_t i = 0; i < shards.size(); ++i) {
    Writer shard = shards[i];
    if (model.metadata() && model.metadata()->find("format")) {
      shard.set_metadata("format", *model.metadata()->find("format"));
    }
    WriteOptions shard_options = options;
    if (options.progress) shard_options.progress = meter.reporting(data_bytes(shard.tensors()));
    files.journal().touch();
    const Layout layout = plan_file(shard, Format::kSafetensors, shard_options);
    io::NewFile file(site.path_of(files.names()[i]), like, ops);
    write_open_file(file, shard, layout, Format::kSafetensors, shard_options, ops);
    file.finish(options.durable);
  }
  meter.report_total();
}

// Step 3: gives the shards their usual names if there is no set to replace, and tells the journal first.
void settle_names(NewShards& files, const ShardSite& site, const WriteOptions& options, io::FileOps& ops) {
  const IndexedFiles replaced = read_indexed_files(site, ops);
  const bool first = replaced.state == IndexedFiles::State::kNone;
  const std::size_t count = files.names().size();
  for (const std::string& name : own_shards(replaced, site)) files.journal().add_old(name);
  for (std::size_t i = 0; first && i < count; ++i) {
    files.journal().add_renamed(usual_shard_name(site.stem, i + 1, count), files.names()[i]);
  }
  files.journal().flush(options.durable);
  if (!first) return;
  const std::string name = files.take_usual_names();
  if (!name.empty() && !options.overwrite) throw taken(site, name);
}

std::string index_text(const Writer& model, const std::vector<Writer>& shards, const std::vector<std::string>& names,
                       bool checksums) {
  TextMap weight_map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const NewTensor& tensor : shards[i].tensors()) weight_map.add(tensor.name, names[i]);
  }
  const TextMap entries = index_metadata(model.metadata(), checksums);
  return safetensors::write_index(weight_map, data_bytes(model.tensors()), &entries);
}

// Step 5.
void commit_index(io::AtomicFile& index, std::string_view text, NewShards& files, io::FileOps& ops) {
  io::write_fully(ops, index.fd(), {reinterpret_cast<const std::byte*>(text.data()), text.size()}, 0,
                  index.target_path());
  try {
    index.commit();
  } catch (const Error&) {
    // The old index may come back with a power failure, so the old shards stay, too.
    if (index.is_published()) files.keep();
    throw;
  }
  files.keep();
}

}  // namespace

std::vector<std::string> Writer::write_shards(const std::filesystem::path& index_path, std::uint64_t max_shard_bytes,
                                              const WriteOptions& options) const try {
  const ShardSite site = site_of_index(index_path);
  check_contents(*this, Format::kSafetensors, options);
  io::FileOps& ops = io::current_file_ops();
  const std::vector<Writer> shards = split(tensors(), max_shard_bytes);
  check_stem(site.stem, shards.size());

  io::AtomicFile index(index_path, {options.durable, options.overwrite}, ops);
  if (!options.overwrite) check_usual_names(site, shards.size(), ops);
  settle_journals(site, "", ops);
  NewShards files(site, shards.size(), ops);
  write_each(*this, shards, files, site, options, ops);
  settle_names(files, site, options, ops);
  if (options.durable && !io::sync_directory(site.directory, ops)) {
    throw io::io_error(errno, "cannot sync '" + site.directory + "'; what was there before is unchanged",
                       index_path.native());
  }
  commit_index(index, index_text(*this, shards, files.names(), options.checksums), files, ops);
  files.journal().release();
  settle_journals(site, files.journal().id(), ops);
  return files.names();
} catch (Error& error) {
  error.in_file(index_path.string()).of_format(Format::kSafetensors);
  throw;
}

}  // namespace weightstore
