#include "checkpoint/checkpoint_index.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <tuple>
#include <utility>

#include "base/checked.h"
#include "base/metadata_keys.h"
#include "checkpoint/attempt.h"
#include "checkpoint/layouts.h"
#include "checkpoint/shard_record.h"
#include "codec/json.h"
#include "file/bucket_range_text.h"
#include "file/table_entry.h"
#include "io/checked_io.h"
#include "io/text_file.h"
#include "table/names.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/safetensors.h"

namespace weightstore::checkpoint {
namespace {

constexpr std::string_view kDenseSuffix = "^ ";

const Value::Map& map_of(const Value& value, std::string_view what) {
  const auto* map = value.get_if<Value::Map>();
  if (map == nullptr) throw Error(ErrorCode::kCorrupt, "'" + std::string(what) + "' is not an object");
  return *map;
}

Error corrupt_in(const std::filesystem::path& path, std::string message) {
  Error error(ErrorCode::kCorrupt, std::move(message));
  error.in_file(path.native());
  return error;
}

using SliceOrder = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
SliceOrder order_of(const BucketRange& slice) { return {slice.size, slice.begin, slice.end}; }

// Of what lies at the path now: device and number of the file.
std::optional<std::pair<std::uint64_t, std::uint64_t>> identity_of(const std::filesystem::path& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return std::pair<std::uint64_t, std::uint64_t>(status.st_dev, status.st_ino);
}

[[noreturn]] void refuse_directory(const std::filesystem::path& directory) {
  bool begun = false;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    begun |= attempt_of_name(entry.path().filename().native()).has_value();
  }
  throw io::io_error(ENOENT,
                     begun ? "the checkpoint is not complete: a save began and has not ended, there is no index"
                           : std::string("holds no checkpoint: neither ") + kPlainIndex + " nor " + kRecisIndex +
                                 " nor model.safetensors",
                     directory.native());
}

Value read_json(const std::filesystem::path& path) try {
  return json_decode(io::read_text_file(path, kMaxIndexBytes, io::system_file_ops()));
} catch (Error& error) {
  error.in_file(path.native());
  throw;
}

// Sizes that our index notes. A file that lost its end is found when it is opened; this finds one that was replaced.
void check_sizes(const Value& files, const TensorTable& table) {
  std::map<std::string, std::uint64_t> sizes;
  for (const auto& source : table.sources()) {
    sizes.emplace(std::filesystem::path(source->name()).filename().native(), source->size());
  }
  for (const auto& [key, bytes] : map_of(files, "files")) {
    const std::string& name = *key.get_if<std::string>();
    const auto found = sizes.find(name);
    if (found == sizes.end() || found->second == as_uint(bytes, "files")) continue;
    throw Error(ErrorCode::kCorrupt, "file '" + printable(name) + "' has " + std::to_string(found->second) +
                                         " bytes, the index says " + std::to_string(as_uint(bytes, "files")));
  }
}

}  // namespace

bool is_own_index(const std::filesystem::path& index, io::FileOps& ops) {
  try {
    const Value metadata =
        json_decode(safetensors::parse_index(io::read_text_file(index, kMaxIndexBytes, ops)).metadata_json);
    const Value* ours = metadata.find(kTablesKey);
    return ours != nullptr && is_table_entry(*ours) && ours->find("attempt") != nullptr;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) throw;
    return false;
  }
}

// A save may replace the checkpoint while it is opened: files that an index named are gone, or the directory is another
// one, and what was read first does not fit what was read then. Then the new one is opened.
CheckpointIndex CheckpointIndex::open(const std::filesystem::path& path, ReadOptions options) {
  table::check_path(path);
  options.limits.safetensors_index_bytes = kMaxIndexBytes;
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    const auto before = identity_of(path);
    try {
      CheckpointIndex index = open_once(path, options);
      if (identity_of(path) == before) return index;
    } catch (const Error& error) {
      const bool gone = before && error.os_errno() == ENOENT;
      if (identity_of(path) == before && (!gone || i == kTries - 1)) throw;
    }
  }
  throw Error(ErrorCode::kConflict, "is replaced again and again while it is opened").in_file(path.native());
}

CheckpointIndex CheckpointIndex::open_once(const std::filesystem::path& path, const ReadOptions& options) {
  std::filesystem::path file = path;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    if (io::is_there(path / kPlainIndex)) {
      file = path / kPlainIndex;
    } else if (io::is_there(path / kRecisIndex)) {
      return open_recis(path, options);
    } else if (io::is_there(path / "model.safetensors")) {
      file = path / "model.safetensors";
    } else {
      refuse_directory(path);
    }
  }
  CheckpointIndex index(Reader::open(file, options));
  try {
    index.add_plain();
    index.finish();
  } catch (Error& failure) {
    failure.in_file(file.native());
    throw;
  }
  return index;
}

CheckpointIndex CheckpointIndex::open_recis(const std::filesystem::path& directory, const ReadOptions& options) try {
  const std::filesystem::path index_path = directory / kRecisIndex;
  const Value json = read_json(index_path);
  const Value keys = read_json(directory / kRecisKeys);
  std::map<std::uint64_t, std::filesystem::path> files;
  for (const auto& [key, number] : map_of(field(json, "file_index"), "file_index")) {
    const std::string& name = *key.get_if<std::string>();
    if (name.find('/') != std::string::npos || !name.ends_with(".safetensors")) {
      throw corrupt_in(index_path, "'" + printable(name) + "' is not a plain name of a .safetensors file");
    }
    if (!files.emplace(as_uint(number, "file_index"), directory / name).second) {
      throw corrupt_in(index_path, "two files have the number of '" + printable(name) + "'");
    }
  }
  std::vector<std::filesystem::path> paths;
  std::map<std::uint64_t, std::uint32_t> source_of;
  for (const auto& [number, file] : files) {
    source_of.emplace(number, static_cast<std::uint32_t>(paths.size()));
    paths.push_back(file);
  }
  CheckpointIndex index(Reader::open_set(paths, options));
  index.recis_ = true;
  const TensorTable& table = index.reader_.table();
  const Value::Map& blocks = map_of(field(json, "block_index"), "block_index");
  for (const auto& [key, number] : blocks) {
    const std::string& block = *key.get_if<std::string>();
    const auto tensor = table.find(block);
    const auto source = source_of.find(as_uint(number, "block_index"));
    if (!tensor || source == source_of.end() || table.source_of(*tensor) != source->second) {
      throw corrupt_in(index_path, "no file with the number it is said to be in has it").in_tensor(block);
    }
    const Value* name = keys.find(block);
    if (name == nullptr) {
      const bool marked = block.ends_with(kDenseSuffix);
      index.add_dense(block.substr(0, block.size() - (marked ? kDenseSuffix.size() : 0)), *tensor);
      continue;
    }
    const std::string& text = text_field(keys, block);
    const std::size_t caret = text.rfind('^');
    const std::size_t at = caret == std::string::npos ? caret : text.rfind('@', caret);
    const auto slice =
        at == std::string::npos ? std::nullopt : slice_from_text(std::string_view(text).substr(caret + 1));
    if (!slice) throw corrupt_in(directory / kRecisKeys, "'" + printable(text) + "' is no name of a table's block");
    index.add_part(text.substr(0, at), text.substr(at + 1, caret - at - 1), *slice, *tensor);
  }
  if (blocks.size() != table.size()) {
    throw corrupt_in(index_path, "names " + std::to_string(blocks.size()) + " blocks, its files have " +
                                     std::to_string(table.size()));
  }
  index.finish();
  return index;
} catch (Error& error) {
  error.in_file((directory / kRecisIndex).native());
  throw;
}

void CheckpointIndex::add_plain() {
  const TensorTable& table = reader_.table();
  std::vector<bool> taken(table.size());
  if (const auto entry = find_table_entry(table.metadata())) {
    // An entry that a conversion wrote says nothing about files.
    if (const Value* files = entry->find("files")) check_sizes(*files, table);
    for (const TableBlock& block : find_table_blocks(*entry, table)) {
      taken[block.tensor] = true;
      add_part(block.table, block.slot, block.slice, block.tensor);
    }
  }
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (!taken[i]) add_dense(std::string(table.name(i)), i);
  }
}

void CheckpointIndex::add_dense(std::string name, std::size_t tensor) {
  const TensorTable& table = reader_.table();
  CheckpointTensor entry{table.dtype(tensor), table.shape(tensor), false, {{tensor, {}, 0}}};
  if (!tensors_.emplace(name, std::move(entry)).second) {
    throw Error(ErrorCode::kCorrupt, "is there twice").in_tensor(name);
  }
}

void CheckpointIndex::add_part(const std::string& table, const std::string& slot, const BucketRange& slice,
                               std::size_t tensor) {
  const TensorTable& files = reader_.table();
  const Shape shape = files.shape(tensor);
  const std::string name = table + "@" + slot;
  CheckpointTensor& entry = tensors_[name];
  if (entry.parts.empty()) entry = {files.dtype(tensor), shape, true, {}};
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::kCorrupt, what).in_tensor(files.name(tensor));
  };
  if (shape.empty() || !entry.column) fail("is no column of a table");
  if (slot == "id" && (files.dtype(tensor) != DType::kI64 || shape.size() != 1))
    fail("ids must be I64 of one dimension");
  if (files.dtype(tensor) != entry.dtype ||
      !std::equal(shape.begin() + 1, shape.end(), entry.shape.begin() + 1, entry.shape.end())) {
    fail("has another type or row shape than other parts of '" + name + "'");
  }
  entry.parts.push_back({tensor, slice, shape.front()});
}

void CheckpointIndex::finish() {
  for (auto& [name, entry] : tensors_) {
    if (!entry.column) continue;
    std::sort(entry.parts.begin(), entry.parts.end(),
              [](const CheckpointPart& a, const CheckpointPart& b) { return order_of(a.slice) < order_of(b.slice); });
    std::uint64_t rows = 0;
    for (std::size_t i = 0; i < entry.parts.size(); ++i) {
      // Two parts of one slice, or of slices that overlap, would be two opinions about one row.
      if (i > 0 && entry.parts[i].slice.size == entry.parts[i - 1].slice.size &&
          entry.parts[i].slice.begin < entry.parts[i - 1].slice.end) {
        throw Error(ErrorCode::kCorrupt, "its parts " + slice_text(entry.parts[i - 1].slice) + " and " +
                                             slice_text(entry.parts[i].slice) + " overlap")
            .in_tensor(name);
      }
      const auto sum = checked_add(rows, entry.parts[i].rows);
      if (!sum) throw Error(ErrorCode::kCorrupt, "has more rows than can be counted").in_tensor(name);
      rows = *sum;
    }
    entry.shape.front() = rows;
    if (!contiguous_bytes(entry.dtype, entry.shape)) throw Error(ErrorCode::kCorrupt, "is too large").in_tensor(name);
  }
}

const CheckpointTensor* CheckpointIndex::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

const CheckpointTensor& CheckpointIndex::at(std::string_view name) const {
  if (const CheckpointTensor* found = find(name)) return *found;
  std::string near;
  const auto it = tensors_.lower_bound(name);
  if (it != tensors_.end()) near = "; near it is '" + printable(it->first) + "'";
  throw Error(ErrorCode::kNotFound, "the checkpoint has no such tensor" + near).in_tensor(name);
}

}  // namespace weightstore::checkpoint
