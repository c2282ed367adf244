#include <sys/stat.h>

#include <string>
#include <tuple>
#include <utility>

#include "file/reader_state.h"
#include "file/renamed_tensors.h"
#include "file/shard_set.h"
#include "io/file_source.h"
#include "weightstore/burnpack.h"
#include "weightstore/checksum.h"
#include "weightstore/pytorch.h"
#include "weightstore/reader.h"
#include "weightstore/safetensors.h"

namespace weightstore {
namespace {

// A set is opened again when its index was replaced meanwhile, at most so often.
constexpr int kTries = 100;

// Which index is at a path. Other tools write a new index into the old file.
using FileIdentity = std::tuple<dev_t, ino_t, off_t, time_t, long>;

// Of the file that the path leads to now; zeros when there is none.
FileIdentity identity_of(const std::filesystem::path& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

}  // namespace

std::shared_ptr<Reader::State> Reader::State::of(ShardSet set, Format format, const ReadOptions& options) {
  auto state = std::make_shared<State>();
  state->options = options;
  state->format = format;
  state->table = std::move(set.table);
  state->checksum_entries = std::move(set.checksum_entries);
  return state;
}

Reader Reader::finish_open(std::shared_ptr<State> state) {
  const Verify verify = state->options.verify;
  const Progress progress = std::exchange(state->options.verify_progress, {});
  if (state->format == Format::kPytorch) {
    if (verify != Verify::kOff) {
      state->storages = std::make_shared<const StorageChecks>(*state->table.sources()[0], state->options.limits);
    }
  } else {
    if (const auto entry = state->table.metadata().find(kChecksumKey)) {
      state->checksum_entries.push_back({std::string(*entry), std::nullopt});
    }
    if (verify != Verify::kOff) {
      state->checksums = std::make_unique<const ChecksumTable>(state->make_checksums());
    }
  }
  if (verify == Verify::kFull) state->require_checksums();
  Reader reader(std::move(state));
  if (verify == Verify::kFull) reader.verify_all(progress);
  return reader;
}

// A save may replace the set between the moment when its index is read and the moment when the last shard is open. The
// shards that the old index names are then gone, or, where the new set has the same names, they are the new set's. So
// what was opened counts only if the index is still the same file afterwards; otherwise the new set is opened.
Reader Reader::open(const std::filesystem::path& path, const ReadOptions& options) try {
  for (int attempt = 1;; ++attempt) {
    const FileIdentity before = identity_of(path);
    // Stays open, so that its inode number cannot go to a newer index.
    auto source = io::open_file(path, options.map, io::system_file_ops());
    if (detect_format(*source) != Format::kSafetensorsIndex) return open(std::move(source), options);
    check_name(path.native(), Format::kSafetensorsIndex);
    ShardSet set;
    try {
      set = open_shards(path, *source, options);
    } catch (const Error&) {
      if (attempt == kTries || identity_of(path) == before) throw;
      continue;
    }
    if (identity_of(path) == before) return finish_open(State::of(std::move(set), Format::kSafetensorsIndex, options));
    if (attempt == kTries) {
      throw Error(ErrorCode::kConflict, "other processes keep replacing the set while it is opened");
    }
  }
} catch (Error& error) {
  error.in_file(path.string());
  throw;
}

Reader Reader::open_set(std::span<const std::filesystem::path> paths, const ReadOptions& options) {
  return finish_open(State::of(weightstore::open_set(paths, options), Format::kSafetensors, options));
}

Reader Reader::open(std::shared_ptr<const ByteSource> source, const ReadOptions& options) {
  const std::string name = source->name();
  try {
    auto state = std::make_shared<State>();
    state->options = options;
    state->format = detect_format(*source);
    check_name(name, state->format);
    switch (state->format) {
      case Format::kBurnpack:
        state->table = burnpack::read_table(std::move(source), options.limits);
        break;
      case Format::kSafetensors:
        state->table = safetensors::read_table(std::move(source), options.limits);
        break;
      case Format::kPytorch:
        state->table = pytorch::read_table(std::move(source), options.limits, {options.opaque});
        break;
      case Format::kSafetensorsIndex:
        throw Error(ErrorCode::kUnsupported, "a shard index names files beside it; open it by its path");
      case Format::kUnknown:
        break;
    }
    return finish_open(std::move(state));
  } catch (Error& error) {
    error.in_file(name);
    throw;
  }
}

Reader Reader::from_static(ConstBytes bytes, const ReadOptions& options) {
  return open(memory_source(bytes, nullptr, "<static>"), options);
}

Reader Reader::renamed(const NameHooks& hooks) const {
  const TensorTable& table = state_->table;
  const RenamedTensors renamed = rename_tensors(table, hooks);
  auto state = std::make_shared<State>();
  state->format = state_->format;
  state->options = state_->options;
  state->storages = state_->storages;

  TextMap metadata = table.metadata();
  if (!state_->checksum_entries.empty()) {
    const std::string entry = renamed.checksums(state_->make_checksums());
    metadata = with_checksum_entry(metadata, entry);
    state->checksum_entries.push_back({entry, std::nullopt});
  }
  state->table = renamed.table(std::move(metadata));
  if (state_->checksums) {
    auto checksums = std::make_unique<ChecksumTable>(state->make_checksums());
    for (std::size_t i = 0; i < state->table.size(); ++i) {
      // What was found right stays so.
      const std::size_t before = renamed.numbers[i];
      if (checksums->expected(i) && !state_->checksums->needs_check(before))
        checksums->check(i, *checksums->expected(i));
    }
    state->checksums = std::move(checksums);
  }
  return Reader(std::move(state));
}

}  // namespace weightstore
