// A set of shards under the names that Hugging Face's tools expect. Those names are fixed, so a new set replaces the
// files of an old one, and no order of renames is atomic as a whole. The index is therefore what makes a set:
//
//  1. Every shard is written, whole, as a temporary beside its final name.
//  2. The old index is removed, and that synced: from here on there is no set, rather than one that mixes old and new
//     shards.
//  3. The shards are renamed to their final names.
//  4. The new index is written, last.
//  5. Shards of the old set that the new one does not use are removed, if their names are such as we give.
//
// A failure before step 2 leaves the old set as it was. When nothing may be overwritten there is no old set, and a
// failure leaves nothing.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "codec/checked.h"
#include "io/atomic_file.h"
#include "io/file_source.h"
#include "io/text_file.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"
#include "weightstore/writer.h"
#include "write_plan.h"

namespace weightstore {
namespace {

constexpr std::string_view kIndexSuffix = ".safetensors.index.json";

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

std::string shard_name(const std::string& base, std::size_t number, std::size_t count) {
  std::array<char, 64> suffix;
  std::snprintf(suffix.data(), suffix.size(), "-%05zu-of-%05zu.safetensors", number, count);
  return base + suffix.data();
}

// Files of the set that `index_path` describes now; empty when there is none or it cannot be read.
std::set<std::string> files_of_old_set(const std::filesystem::path& index_path, io::FileOps& ops) {
  std::set<std::string> files;
  try {
    const auto source = io::open_file(index_path, false, ops);
    if (source->size() > Limits().safetensors_index_bytes) return files;
    std::string text(static_cast<std::size_t>(source->size()), '\0');
    source->read_at(0, {reinterpret_cast<std::byte*>(text.data()), text.size()});
    const TextMap map = safetensors::parse_index(text).weight_map;
    for (std::size_t i = 0; i < map.size(); ++i) files.emplace(map.value(i));
  } catch (const Error&) {
  }
  return files;
}

// Whether a name is one that shard_name() gives.
bool is_shard_name(std::string_view name, const std::string& base) {
  std::size_t number = 0;
  std::size_t count = 0;
  if (!name.starts_with(base)) return false;
  const std::string suffix(name.substr(base.size()));
  return std::sscanf(suffix.c_str(), "-%zu-of-%zu.safetensors", &number, &count) == 2 &&
         shard_name(base, number, count) == name;
}

// Files that were given their names, and lose them again unless kept.
class NewNames {
 public:
  explicit NewNames(io::FileOps& ops) : ops_(ops) {}
  ~NewNames() {
    for (const std::string& path : paths_) ops_.unlink(path.c_str());
  }
  NewNames(const NewNames&) = delete;
  NewNames& operator=(const NewNames&) = delete;

  void add(std::string path) { paths_.push_back(std::move(path)); }
  void keep() { paths_.clear(); }

 private:
  io::FileOps& ops_;
  std::vector<std::string> paths_;
};

void remove_index(const std::filesystem::path& index_path, bool durable, io::FileOps& ops) {
  // The link stays when the index is one.
  const std::filesystem::path target = io::follow_links(index_path);
  if (ops.unlink(target.c_str()) != 0) {
    if (errno == ENOENT) return;
    throw Error(ErrorCode::kIo, "cannot remove the old index").with_errno(errno);
  }
  const std::string directory = target.parent_path().empty() ? "." : target.parent_path().string();
  if (durable && !io::sync_directory(directory, ops)) {
    throw Error(ErrorCode::kIo, "the old index is removed, but its directory cannot be synced; write the set again")
        .with_errno(errno);
  }
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

}  // namespace

std::vector<std::string> Writer::write_shards(const std::filesystem::path& index_path, std::uint64_t max_shard_bytes,
                                              const WriteOptions& options) const try {
  const std::string index_name = index_path.filename().string();
  if (!index_name.ends_with(kIndexSuffix) || index_name.size() == kIndexSuffix.size()) {
    throw Error(ErrorCode::kInvalidArgument, "the name of a shard index ends in '" + std::string(kIndexSuffix) +
                                                 "', such as model.safetensors.index.json");
  }
  plan_file(*this, Format::kSafetensors, options);
  const std::string base = index_name.substr(0, index_name.size() - kIndexSuffix.size());
  io::FileOps& ops = options.file_ops != nullptr ? *options.file_ops : io::system_file_ops();
  const std::vector<Writer> shards = split(tensors_, max_shard_bytes);

  std::uint64_t total = 0;
  for (const NewTensor& tensor : tensors_) total += tensor.bytes->size();
  std::uint64_t before = 0;
  TextMap weight_map;
  std::vector<std::string> names;
  std::vector<std::unique_ptr<io::AtomicFile>> files;
  std::error_code unknown;  // then opening the shards says what is wrong
  if (!options.overwrite && std::filesystem::exists(index_path, unknown)) {
    throw Error(ErrorCode::kConflict, "the file exists; allow overwriting, or choose another name").with_errno(EEXIST);
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    names.push_back(shard_name(base, i + 1, shards.size()));
    files.push_back(std::make_unique<io::AtomicFile>(index_path.parent_path() / names.back(),
                                                     io::AtomicFile::Options{options.durable, options.overwrite}, ops));
    WriteOptions shard_options = options;
    if (options.progress) {
      // One scale for the whole set; a shard's header, which is what its file has beside its data, counts for nothing.
      std::uint64_t data_size = 0;
      for (const NewTensor& tensor : shards[i].tensors()) data_size += tensor.bytes->size();
      shard_options.progress = [&options, before, total, data_size](std::uint64_t done, std::uint64_t file_size,
                                                                    std::string_view name) {
        const std::uint64_t header_size = file_size - data_size;
        return options.progress(before + (done > header_size ? done - header_size : 0), total, name);
      };
    }
    Writer shard = shards[i];
    if (metadata_ && metadata_->find("format")) shard.set_metadata("format", *metadata_->find("format"));
    write_open_file(*files.back(), shard, Format::kSafetensors, shard_options, ops);
    for (const NewTensor& tensor : shard.tensors()) {
      weight_map.add(tensor.name, names.back());
      before += tensor.bytes->size();
    }
  }

  std::set<std::string> stale = files_of_old_set(index_path, ops);
  if (options.overwrite) remove_index(index_path, options.durable, ops);
  NewNames committed(ops);
  for (const auto& file : files) {
    file->commit();
    if (!options.overwrite) committed.add(file->target_path());
  }
  const TextMap metadata = index_metadata(metadata_, options.checksums);
  io::write_text_file(index_path, safetensors::write_index(weight_map, total, &metadata),
                      {options.durable, options.overwrite}, ops);
  committed.keep();
  for (const std::string& name : names) stale.erase(name);
  for (const std::string& name : stale) {
    if (is_shard_name(name, base)) ops.unlink((index_path.parent_path() / name).c_str());
  }
  return names;
} catch (Error& error) {
  error.in_file(index_path.string()).of_format(Format::kSafetensors);
  throw;
}

}  // namespace weightstore
