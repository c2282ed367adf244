#include "checkpoint/checkpoint_index.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <tuple>
#include <utility>

#include "base/checked.h"
#include "base/metadata_keys.h"
#include "checkpoint/arguments.h"
#include "checkpoint/find_model.h"
#include "checkpoint/layouts.h"
#include "checkpoint/save_names.h"
#include "checkpoint/shard_record.h"
#include "codec/json.h"
#include "file/assembled_tensors.h"
#include "file/boxes/box.h"
#include "file/boxes/box_cover.h"
#include "file/boxes/chunk_entry.h"
#include "file/bucket_range_text.h"
#include "file/table_entry.h"
#include "io/checked_io.h"
#include "io/paths.h"
#include "io/text_file.h"
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

using RangeOrder = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
RangeOrder order_of(const BucketRange& buckets) { return {buckets.size, buckets.begin, buckets.end}; }

// What a path leads to, held open so that its inode number cannot go to a newer file or directory.
class HeldPath {
 public:
  HeldPath(const std::filesystem::path& path, io::FileOps& ops) : path_(path), ops_(ops) {
    fd_ = io::retry_interrupted([&] { return ops.open(path.c_str(), O_PATH | O_CLOEXEC, 0); });
    if (fd_ < 0 && errno != ENOENT && errno != ENOTDIR) throw io::io_error(errno, "cannot open", path.native());
    if (fd_ >= 0 && io::retry_interrupted([&] { return ops.fstat(fd_, &status_); }) != 0) {
      const int cause = errno;
      io::close_quietly(ops, fd_);
      throw io::io_error(cause, "cannot look at", path.native());
    }
  }
  ~HeldPath() {
    if (fd_ >= 0) io::close_quietly(ops_, fd_);
  }
  HeldPath(const HeldPath&) = delete;
  HeldPath& operator=(const HeldPath&) = delete;

  bool is_there() const { return fd_ >= 0; }
  bool is_directory() const { return is_there() && S_ISDIR(status_.st_mode); }

  // Whether the path still leads there, or still to nothing.
  bool is_current() const {
    const auto now = io::find_file(path_, ops_);
    if (!now || !is_there()) return !now && !is_there();
    return now->st_dev == status_.st_dev && now->st_ino == status_.st_ino;
  }

 private:
  const std::filesystem::path& path_;
  io::FileOps& ops_;
  int fd_;
  struct stat status_;
};

Value read_json(const std::filesystem::path& path, io::FileOps& ops) try {
  return json_decode(io::read_text_file(path, kMaxIndexBytes, ops));
} catch (Error& error) {
  error.in_file(path.native());
  throw;
}

// Compares the sizes of the files with those in the index. This finds files that were replaced; a truncated file is
// found when it is opened.
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

// The files that the recis index names, in the order of their numbers.
struct RecisFiles {
  std::vector<std::filesystem::path> paths;
  std::map<std::uint64_t, std::uint32_t> source_of;  // from the number of a file to its position in `paths`
};

RecisFiles recis_files(const Value& index, const std::filesystem::path& directory) {
  const std::filesystem::path index_path = directory / kRecisIndex;
  std::map<std::uint64_t, std::filesystem::path> by_number;
  for (const auto& [key, number] : map_of(field(index, "file_index"), "file_index")) {
    const std::string& name = *key.get_if<std::string>();
    if (!is_data_name(name)) {
      throw corrupt_in(index_path, "'" + printable(name) + "' is not a plain name of a .safetensors file");
    }
    if (!by_number.emplace(as_uint(number, "file_index"), directory / name).second) {
      throw corrupt_in(index_path, "two files have the number of '" + printable(name) + "'");
    }
  }
  RecisFiles files;
  for (const auto& [number, path] : by_number) {
    files.source_of.emplace(number, static_cast<std::uint32_t>(files.paths.size()));
    files.paths.push_back(path);
  }
  return files;
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

// A save may replace the checkpoint while this function opens it: files that the index named are gone, or the directory
// is another one and the files do not fit together. Then the function opens the new checkpoint.
CheckpointIndex CheckpointIndex::open(const std::filesystem::path& path, ReadOptions options, SeveralIndexes several) {
  check_path(path);
  // Unless the caller has a limit of its own.
  std::uint64_t& limit = options.limits.safetensors_index_bytes;
  if (limit == Limits().safetensors_index_bytes) limit = kMaxIndexBytes;
  io::FileOps& ops = io::current_file_ops();
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    const HeldPath held(path, ops);
    try {
      CheckpointIndex index = held.is_directory() ? open_directory(path, options, several, ops)
                                                  : of_plain(Reader::open(path, options), path);
      if (held.is_current()) return index;
    } catch (const Error& error) {
      const bool gone = held.is_there() && error.os_errno() == ENOENT;
      if (held.is_current() && (!gone || i == kTries - 1)) throw;
    }
  }
  throw Error(ErrorCode::kConflict, "other saves keep replacing the checkpoint while it is opened")
      .in_file(path.native());
}

CheckpointIndex CheckpointIndex::open_directory(const std::filesystem::path& directory, const ReadOptions& options,
                                                SeveralIndexes several, io::FileOps& ops) {
  const DirectoryModel model = find_model(directory, several, ops);
  switch (model.kind) {
    case DirectoryModel::Kind::kFile:
      return of_plain(Reader::open(model.paths[0], options), model.paths[0]);
    case DirectoryModel::Kind::kShards:
      return of_plain(Reader::open_set(model.paths, options), directory);
    case DirectoryModel::Kind::kRecis:
      return open_recis(directory, options, ops);
  }
  throw Error(ErrorCode::kInvalidArgument, "no such kind of directory");
}

CheckpointIndex CheckpointIndex::of_plain(Reader reader, const std::filesystem::path& path) {
  CheckpointIndex index(std::move(reader));
  try {
    index.add_plain();
    index.finish();
  } catch (Error& failure) {
    failure.in_file(path.native());
    throw;
  }
  return index;
}

CheckpointIndex CheckpointIndex::open_recis(const std::filesystem::path& directory, const ReadOptions& options,
                                            io::FileOps& ops) try {
  const std::filesystem::path index_path = directory / kRecisIndex;
  const Value json = read_json(index_path, ops);
  const Value names = read_json(directory / kRecisKeys, ops);
  const RecisFiles files = recis_files(json, directory);
  CheckpointIndex index(Reader::open_set(files.paths, options));
  index.recis_ = true;
  const TensorTable& table = index.reader_.table();
  const Value::Map& blocks = map_of(field(json, "block_index"), "block_index");
  for (const auto& [key, number] : blocks) {
    const std::string& block = *key.get_if<std::string>();
    const auto tensor = table.find(block);
    const auto source = files.source_of.find(as_uint(number, "block_index"));
    if (!tensor || source == files.source_of.end() || table.source_of(*tensor) != source->second) {
      throw corrupt_in(index_path, "the file that the index names does not have it").in_tensor(block);
    }
    index.add_recis(block, *tensor, names, directory / kRecisKeys);
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

// A column is called "user@embedding^00000@32768@65536" in tensorkey.json. A dense tensor is not there; its key ends in
// kDenseSuffix.
void CheckpointIndex::add_recis(const std::string& key, std::size_t tensor, const Value& names,
                                const std::filesystem::path& names_path) {
  if (names.find(key) == nullptr) {
    const bool marked = key.ends_with(kDenseSuffix);
    return add_dense(key.substr(0, key.size() - (marked ? kDenseSuffix.size() : 0)), tensor);
  }
  const std::string& name = text_field(names, key);
  const std::size_t caret = name.rfind('^');
  const std::size_t at = caret == std::string::npos ? caret : name.rfind('@', caret);
  const auto buckets =
      at == std::string::npos ? std::nullopt : bucket_range_from_text(std::string_view(name).substr(caret + 1));
  if (!buckets) throw corrupt_in(names_path, "'" + printable(name) + "' is no name of a block of a table");
  add_block(name.substr(0, at), name.substr(at + 1, caret - at - 1), *buckets, tensor);
}

void CheckpointIndex::add_plain() {
  const TensorTable& table = reader_.table();
  std::vector<bool> taken(table.size());
  if (const auto entry = find_table_entry(table.metadata())) {
    // A conversion writes an entry without "files".
    if (const Value* files = entry->find("files")) check_sizes(*files, table);
    for (const TableBlock& block : find_table_blocks(*entry, table)) {
      taken[block.tensor] = true;
      add_block(block.table, block.slot, block.buckets, block.tensor);
    }
    for (TensorChunk& chunk : find_tensor_chunks(*entry, table)) {
      if (taken[chunk.tensor]) continue;
      taken[chunk.tensor] = true;
      add_chunk(std::move(chunk));
    }
  }
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (!taken[i]) add_dense(std::string(table.name(i)), i);
  }
}

void CheckpointIndex::add_dense(std::string name, std::size_t tensor) {
  const TensorTable& table = reader_.table();
  CheckpointTensor entry{
      table.dtype(tensor), table.shape(tensor), CheckpointTensor::Kind::kDense, {{tensor, {}, 0, {}}}};
  if (!tensors_.emplace(name, std::move(entry)).second) {
    throw Error(ErrorCode::kCorrupt, "the checkpoint has it twice").in_tensor(name);
  }
}

void CheckpointIndex::add_chunk(TensorChunk chunk) {
  CheckpointTensor& entry = tensors_[chunk.name];
  if (entry.blocks.empty()) {
    entry = {reader_.table().dtype(chunk.tensor), std::move(chunk.whole), CheckpointTensor::Kind::kChunked, {}};
  } else if (entry.kind != CheckpointTensor::Kind::kChunked) {
    throw Error(ErrorCode::kCorrupt, "is a column of a table, too").in_tensor(chunk.name);
  }
  entry.blocks.push_back({chunk.tensor, {}, 0, std::move(chunk.begin)});
}

void CheckpointIndex::add_block(const std::string& table, const std::string& slot, const BucketRange& buckets,
                                std::size_t tensor) {
  const TensorTable& files = reader_.table();
  const Shape shape = files.shape(tensor);
  const std::string name = table + "@" + slot;
  CheckpointTensor& entry = tensors_[name];
  if (entry.blocks.empty()) entry = {files.dtype(tensor), shape, CheckpointTensor::Kind::kColumn, {}};
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::kCorrupt, what).in_tensor(files.name(tensor));
  };
  if (shape.empty() || !entry.is_column()) fail("is no column of a table");
  if (slot == "id" && (files.dtype(tensor) != DType::kI64 || shape.size() != 1))
    fail("ids must be I64 of one dimension");
  if (files.dtype(tensor) != entry.dtype ||
      !std::equal(shape.begin() + 1, shape.end(), entry.shape.begin() + 1, entry.shape.end())) {
    fail("has another type or row shape than other blocks of '" + name + "'");
  }
  entry.blocks.push_back({tensor, buckets, shape.front(), {}});
}

void CheckpointIndex::finish() {
  for (auto& [name, entry] : tensors_) {
    if (entry.kind == CheckpointTensor::Kind::kChunked) check_chunks(name, entry);
    if (!entry.is_column()) continue;
    std::sort(entry.blocks.begin(), entry.blocks.end(), [](const CheckpointBlock& a, const CheckpointBlock& b) {
      return order_of(a.buckets) < order_of(b.buckets);
    });
    std::uint64_t rows = 0;
    for (std::size_t i = 0; i < entry.blocks.size(); ++i) {
      // An id of a bucket that two blocks have could have two different rows.
      if (i > 0 && entry.blocks[i].buckets.size == entry.blocks[i - 1].buckets.size &&
          entry.blocks[i].buckets.begin < entry.blocks[i - 1].buckets.end) {
        throw Error(ErrorCode::kCorrupt, "its blocks " + bucket_range_text(entry.blocks[i - 1].buckets) + " and " +
                                             bucket_range_text(entry.blocks[i].buckets) + " overlap")
            .in_tensor(name);
      }
      const auto sum = checked_add(rows, entry.blocks[i].rows);
      if (!sum) throw Error(ErrorCode::kCorrupt, "has more rows than can be counted").in_tensor(name);
      rows = *sum;
    }
    entry.shape.front() = rows;
    if (!contiguous_bytes(entry.dtype, entry.shape)) throw Error(ErrorCode::kCorrupt, "is too large").in_tensor(name);
  }
}

// The chunks of a tensor must have one type and cover it.
void CheckpointIndex::check_chunks(const std::string& name, const CheckpointTensor& tensor) const try {
  const TensorTable& table = reader_.table();
  std::vector<BoxPlace> places;
  for (const CheckpointBlock& block : tensor.blocks) {
    if (table.dtype(block.tensor) != tensor.dtype) throw Error(ErrorCode::kCorrupt, "its chunks have several types");
    places.push_back({block.begin, table.shape(block.tensor)});
    BoxRuns(box_of(tensor.dtype, tensor.shape, block.begin, places.back().size));
  }
  if (const auto problem = why_no_cover(tensor.shape, places)) throw Error(ErrorCode::kCorrupt, *problem);
} catch (const Error& error) {
  throw Error(ErrorCode::kCorrupt, error.message()).in_tensor(name);
}

Reader CheckpointIndex::assembled(const std::string& path, Columns columns) const {
  const auto is_assembled = [&](const auto& entry) {
    return entry.second.kind == CheckpointTensor::Kind::kChunked ||
           (entry.second.is_column() && columns == Columns::kWhole);
  };
  const bool renamed = recis_ && columns == Columns::kWhole;
  if (!renamed && std::none_of(tensors_.begin(), tensors_.end(), is_assembled)) return reader_;
  AssembledTensors assembled(reader_, path);
  const TensorTable& table = reader_.table();
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.is_column() && columns == Columns::kInBlocks) {
      for (const CheckpointBlock& block : tensor.blocks) {
        assembled.add(table.name(block.tensor), table.shape(block.tensor), {block.tensor});
      }
      continue;
    }
    PartNumbers numbers;
    std::vector<Shape> begins;
    for (const CheckpointBlock& block : tensor.blocks) {
      numbers.push_back(block.tensor);
      begins.push_back(block.begin);
    }
    if (tensor.kind == CheckpointTensor::Kind::kChunked) {
      assembled.add_boxes(name, tensor.shape, std::move(numbers), begins);
    } else {
      assembled.add(name, tensor.shape, std::move(numbers));
    }
  }
  return std::move(assembled).finish();
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
