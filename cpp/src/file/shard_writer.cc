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

#include <sys/stat.h>

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
#include "io/text_file.h"
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
std::optional<io::FilePattern> pattern_of(const std::vector<std::string>& old_shards, const ShardSite& site) {
  for (const std::string& name : old_shards) {
    io::FilePattern pattern{site.path_of(name), {}};
    if (::lstat(pattern.path.c_str(), &pattern.status) == 0 && S_ISREG(pattern.status.st_mode)) return pattern;
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
      .with_errno(EEXIST);
}

// Before anything is written, when nothing may be overwritten.
void check_usual_names(const ShardSite& site, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = usual_shard_name(site.stem, i + 1, count);
    if (io::is_there(site.path_of(name))) throw taken(site, name);
  }
}

}  // namespace

std::vector<std::string> Writer::write_shards(const std::filesystem::path& index_path, std::uint64_t max_shard_bytes,
                                              const WriteOptions& options) const try {
  const ShardSite site = site_of_index(index_path);
  plan_file(*this, Format::kSafetensors, options);
  io::FileOps& ops = options.file_ops != nullptr ? *options.file_ops : io::system_file_ops();
  const std::vector<Writer> shards = split(tensors(), max_shard_bytes);
  const std::uint64_t total = data_bytes(tensors());
  check_stem(site.stem, shards.size());

  io::AtomicFile index(index_path, {options.durable, options.overwrite}, ops);
  if (!options.overwrite) check_usual_names(site, shards.size());
  settle_journals(site, "", ops);
  NewShards files(site, shards.size(), ops);
  const auto like = pattern_of(own_shards(read_indexed_files(site, ops), site), site);
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    Writer shard = shards[i];
    if (metadata() && metadata()->find("format")) shard.set_metadata("format", *metadata()->find("format"));
    const std::uint64_t data_size = data_bytes(shard.tensors());
    WriteOptions shard_options = options;
    if (options.progress) {
      // One scale for the whole set; a shard's header, which is what its file has beside its data, counts for nothing.
      shard_options.progress = [&options, before, total, data_size](std::uint64_t done, std::uint64_t file_size,
                                                                    std::string_view name) {
        const std::uint64_t header_size = file_size - data_size;
        return options.progress(before + (done > header_size ? done - header_size : 0), total, name);
      };
    }
    files.journal().touch();
    io::NewFile file(site.path_of(files.names()[i]), like, ops);
    write_open_file(file, shard, Format::kSafetensors, shard_options, ops);
    file.finish(options.durable);
    before += data_size;
  }

  const IndexedFiles replaced = read_indexed_files(site, ops);
  const bool first = replaced.state == IndexedFiles::State::kNone;
  for (const std::string& name : own_shards(replaced, site)) files.journal().add_old(name);
  for (std::size_t i = 0; first && i < shards.size(); ++i) {
    files.journal().add_renamed(usual_shard_name(site.stem, i + 1, shards.size()), files.names()[i]);
  }
  files.journal().flush(options.durable);
  if (first) {
    const std::string name = files.take_usual_names();
    if (!name.empty() && !options.overwrite) throw taken(site, name);
  }
  if (options.durable && !io::sync_directory(site.directory, ops)) {
    throw io::io_error(errno, "cannot sync '" + site.directory + "'; what was there before is unchanged",
                       index_path.native());
  }

  TextMap weight_map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const NewTensor& tensor : shards[i].tensors()) weight_map.add(tensor.name, files.names()[i]);
  }
  const TextMap index_entries = index_metadata(metadata(), options.checksums);
  const std::string text = safetensors::write_index(weight_map, total, &index_entries);
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
  files.journal().release();
  settle_journals(site, files.journal().id(), ops);
  return files.names();
} catch (Error& error) {
  error.in_file(index_path.string()).of_format(Format::kSafetensors);
  throw;
}

}  // namespace weightstore
