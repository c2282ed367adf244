#include <string>
#include <utility>

#include "file/reader_state.h"
#include "file/renamed_tensors.h"
#include "file/shard_set.h"
#include "formats/registry.h"
#include "io/file_identity.h"
#include "io/file_source.h"
#include "io/paths.h"
#include "weightstore/checksum.h"
#include "weightstore/reader.h"

namespace weightstore {
namespace {

// A set is opened again when its index was replaced meanwhile, at most so often.
constexpr int kTries = 100;

// Which index the path leads to now.
io::FileIdentity index_at(const std::filesystem::path& path, io::FileOps& ops) {
  return io::identity_of(io::find_file(path, ops));
}

}  // namespace

std::shared_ptr<Reader::State> Reader::State::of(OpenedFile file, Format format, const ReadOptions& options) {
  auto state = std::make_shared<State>();
  state->options = options;
  state->format = format;
  state->table = std::move(file.table);
  state->expansion = file.expansion;
  state->own_checksums = std::move(file.own_checksums);
  return state;
}

std::shared_ptr<Reader::State> Reader::State::of(ShardSet set, Format format, const ReadOptions& options) {
  auto state = std::make_shared<State>();
  state->options = options;
  state->format = format;
  state->table = std::move(set.table);
  state->is_set = true;
  state->expansion = set.expansion;
  state->checksum_entries = std::move(set.checksum_entries);
  return state;
}

std::string Reader::State::file_name() const {
  if (!name.empty()) return name;
  const auto& sources = table.sources();
  return sources.empty() || (is_set && sources.size() > 1) ? std::string() : sources[0]->name();
}

void Reader::State::rethrow(Error& error) const {
  if (const std::string file = file_name(); !file.empty()) error.in_file(file);
  error.of_format(format);
  throw error;
}

Reader Reader::finish_open(std::shared_ptr<State> state) {
  const Verify verify = state->options.verify;
  const Progress progress = std::exchange(state->options.verify_progress, {});
  if (const auto entry = state->table.metadata().find(kChecksumKey)) {
    state->checksum_entries.push_back({std::string(*entry), std::nullopt});
  }
  if (verify != Verify::kOff) state->checksums = state->known_checksums();
  if (verify == Verify::kFull) {
    try {
      state->checksums->require_all(state->table);
    } catch (Error& error) {
      state->rethrow(error);
    }
  }
  Reader reader(std::move(state));
  if (verify == Verify::kFull) reader.verify_all(progress);
  return reader;
}

// A save may replace the set between the moment when its index is read and the moment when the last shard is open. The
// shards that the old index names are then gone, or, where the new set has the same names, they are the new set's. So
// what was opened counts only if the index is still the same file afterwards; otherwise the new set is opened.
Reader Reader::open(const std::filesystem::path& path, const ReadOptions& options) try {
  io::FileOps& ops = io::current_file_ops();
  for (int attempt = 1;; ++attempt) {
    const io::FileIdentity before = index_at(path, ops);
    // Stays open, so that its inode number cannot go to a newer index.
    auto source = io::open_file(path, options.map, ops);
    const Format format = detect_format(*source);
    check_name(path.native(), format);
    if (!spec_of(format).is_index) return open_as(format, std::move(source), options);
    ShardSet set;
    try {
      set = open_shards(path, *source, options, ops);
    } catch (const Error&) {
      if (attempt == kTries || index_at(path, ops) == before) throw;
      continue;
    }
    const Format opened = set.shard_format == Format::kSafetensors ? format : set.shard_format;
    if (index_at(path, ops) == before) return finish_open(State::of(std::move(set), opened, options));
    if (attempt == kTries) {
      throw Error(ErrorCode::kConflict, "other processes keep replacing the set while it is opened");
    }
  }
} catch (Error& error) {
  error.in_file(path.string());
  throw;
}

Reader Reader::open_set(std::span<const std::filesystem::path> paths, const ReadOptions& options) {
  return finish_open(
      State::of(weightstore::open_set(paths, options, io::current_file_ops()), Format::kSafetensors, options));
}

Reader Reader::open_as(Format format, std::shared_ptr<const ByteSource> source, const ReadOptions& options) {
  return finish_open(State::of(spec_of(format).open(std::move(source), options), format, options));
}

Reader Reader::open(std::shared_ptr<const ByteSource> source, const ReadOptions& options) {
  const std::string name = source->name();
  try {
    const Format format = detect_format(*source);
    check_name(name, format);
    return open_as(format, std::move(source), options);
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
  state->ops = state_->ops;
  state->is_set = state_->is_set;
  state->name = state_->name;
  state->expansion = state_->expansion;
  state->checksums = state_->checksums;
  state->own_checksums = state_->own_checksums;

  TextMap metadata = table.metadata();
  if (!state_->checksum_entries.empty()) {
    const std::string entry = renamed.checksums(state_->recorded_checksums());
    metadata = with_checksum_entry(metadata, entry);
    state->checksum_entries = {{entry, std::nullopt}};
  }
  state->table = renamed.table(std::move(metadata));
  // The format's own checksums go by places in the file, so that both readers share them.
  if (state_->checksums && !state_->own_checksums) {
    auto checksums = std::make_shared<ChecksumTable>(state->recorded_checksums());
    for (std::size_t i = 0; i < state->table.size(); ++i) {
      // What was found right stays so.
      if (!state_->checksums->needs_check(table, renamed.numbers[i])) checksums->accept(i);
    }
    state->checksums = std::move(checksums);
  }
  return Reader(std::move(state));
}

}  // namespace weightstore
