#include "file/shard_set.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "codec/json.h"
#include "formats/registry.h"
#include "io/checked_io.h"
#include "io/descriptor_limit.h"
#include "io/file_source.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"

namespace weightstore {
namespace {

std::string read_text(const ByteSource& source, std::uint64_t limit) {
  if (source.size() > limit) {
    throw Error(ErrorCode::kLimit,
                "the index has " + std::to_string(source.size()) + " bytes, the limit is " + std::to_string(limit));
  }
  std::string text(static_cast<std::size_t>(source.size()), '\0');
  source.read_at(0, {reinterpret_cast<std::byte*>(text.data()), text.size()});
  return text;
}

// The index's metadata as text: strings as they are, everything else as its JSON. Files of torch.save() have no
// metadata of their own, so that the sum of their sizes says nothing about what is made of them.
TextMap index_metadata(std::string_view json, Format shard_format) {
  TextMap metadata;
  JsonCursor cursor(json);
  std::string key_scratch;
  std::string scratch;
  std::string_view key;
  cursor.begin_object();
  while (cursor.next_key(key, key_scratch)) {
    const std::string_view value = cursor.peek() == '"' ? cursor.read_string(scratch) : cursor.skip_value();
    if (shard_format == Format::kSafetensors || key != "total_size") metadata.add(key, value);
  }
  metadata.sort();
  if (const std::size_t i = metadata.duplicate(); i < metadata.size()) {
    cursor.fail("duplicate metadata key '" + printable(metadata.key(i)) + "'");
  }
  return metadata;
}

// Entries that two shards agree about. What a shard says of its own tensors is not the set's.
TextMap common_entries(const TextMap& a, const TextMap& b) {
  TextMap common;
  for (std::size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    if (a.key(i) != b.key(k)) {
      ++(a.key(i) < b.key(k) ? i : k);
      continue;
    }
    if (a.value(i) == b.value(k) && a.key(i) != kChecksumKey) common.add(a.key(i), a.value(i));
    ++i;
    ++k;
  }
  return common;
}

// The set's metadata: the index's, and what all shards have in common beside it (such as `format`).
TextMap merge(const TextMap& index, const TextMap& shards) {
  TextMap merged = index;
  for (std::size_t i = 0, k = 0; k < shards.size(); ++k) {
    while (i < index.size() && index.key(i) < shards.key(k)) ++i;
    if (i == index.size() || index.key(i) != shards.key(k)) merged.add(shards.key(k), shards.value(k));
  }
  merged.sort();
  return merged;
}

std::vector<std::string_view> shard_names(const TextMap& weight_map) {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < weight_map.size(); ++i) {
    if (names.empty() || names.back() != weight_map.value(i)) names.push_back(weight_map.value(i));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// Every tensor of the index is where it says. `shards[i]` has the sources from first_sources[i] on.
void check_index(const TextMap& weight_map, const TensorTable& table, const std::vector<std::string_view>& shards,
                 const std::vector<std::uint32_t>& first_sources) {
  const auto shard_of = [&](std::size_t tensor) {
    const auto after = std::upper_bound(first_sources.begin(), first_sources.end(), table.source_of(tensor));
    return shards[static_cast<std::size_t>(after - first_sources.begin()) - 1];
  };
  for (std::size_t i = 0; i < weight_map.size(); ++i) {
    const auto found = table.find(weight_map.key(i));
    const std::string shard(weight_map.value(i));
    if (!found) {
      throw Error(ErrorCode::kCorrupt, "the index maps it to '" + shard + "', which does not hold it")
          .in_tensor(weight_map.key(i));
    }
    if (const std::string_view actual = shard_of(*found); actual != shard) {
      throw Error(ErrorCode::kCorrupt,
                  "the index maps it to '" + shard + "', but it is in '" + std::string(actual) + "'")
          .in_tensor(weight_map.key(i));
    }
  }
  if (table.size() == weight_map.size()) return;
  const std::vector<std::uint32_t> by_name = table.by_name();
  for (std::size_t i = 0; i < table.size(); ++i) {
    // Both are sorted by name, so the first difference is the tensor that the index lacks.
    const std::size_t tensor = by_name[i];
    if (i == weight_map.size() || weight_map.key(i) != table.name(tensor)) {
      throw Error(ErrorCode::kCorrupt,
                  "shard '" + std::string(shard_of(tensor)) + "' holds it, but the index does not name it")
          .in_tensor(table.name(tensor));
    }
  }
}

// What the files of a set have together.
struct AppendedShards {
  ShardSet set;
  std::optional<TextMap> common;             // metadata
  std::vector<std::uint32_t> first_sources;  // of each file, in the table
};

OpenedFile open_shard(Format format, std::shared_ptr<const ByteSource> source, const ReadOptions& options) {
  // SafeTensors has no signature: its reader says what is wrong.
  if (format != Format::kSafetensors && detect_format(*source) != format) {
    throw Error(ErrorCode::kUnsupported,
                "the index calls it " + std::string(spec_of(format).described) + ", which it is not");
  }
  return spec_of(format).open(std::move(source), options);
}

AppendedShards append_all(Format format, std::span<const std::filesystem::path> paths, const ReadOptions& options,
                          io::FileOps& ops) {
  io::make_room_for(paths.size());
  AppendedShards result;
  ShardSet& set = result.set;
  set.shard_format = format;
  std::uint64_t bytes = 0;
  for (const std::filesystem::path& path : paths) {
    try {
      auto source = open_member(path, paths.size(), options.map, ops);
      bytes += source->size();
      const OpenedFile file = open_shard(format, std::move(source), options);
      const TensorTable& table = file.table;
      result.first_sources.push_back(static_cast<std::uint32_t>(set.table.sources().size()));
      if (const auto entry = table.metadata().find(kChecksumKey)) {
        set.checksum_entries.push_back({std::string(*entry), static_cast<std::uint32_t>(set.table.sources().size())});
      }
      result.common = common_entries(result.common ? *result.common : table.metadata(), table.metadata());
      set.table.append(table);
    } catch (Error& error) {
      error.in_file(path.string());
      throw;
    }
  }
  if (format != Format::kSafetensors) set.expansion = ExpansionLimit::usual(bytes, options.limits);
  return result;
}

}  // namespace

std::shared_ptr<const ByteSource> open_member(const std::filesystem::path& path, std::size_t files, bool map,
                                              io::FileOps& ops) {
  for (;;) {
    try {
      return io::open_file(path, map, ops);
    } catch (const Error& error) {
      if (error.os_errno() != EMFILE) throw;
      if (io::raise_descriptor_limit()) continue;
      throw io::io_error(EMFILE,
                         "the set has " + std::to_string(files) +
                             " files, which are open together; allow the process more (ulimit -n), cannot open",
                         path.native());
    }
  }
}

ShardSet open_set(std::span<const std::filesystem::path> paths, const ReadOptions& options, io::FileOps& ops) {
  AppendedShards shards = append_all(Format::kSafetensors, paths, options, ops);
  shards.set.table.set_metadata(shards.common.value_or(TextMap()));
  shards.set.table.finish();
  return std::move(shards.set);
}

ShardSet open_shards(const std::filesystem::path& index_path, const ByteSource& index, const ReadOptions& options,
                     io::FileOps& ops) {
  const std::string text = read_text(index, options.limits.safetensors_index_bytes);
  const safetensors::ShardIndex parsed = safetensors::parse_index(text);
  const std::vector<std::string_view> shards = shard_names(parsed.weight_map);

  std::vector<std::filesystem::path> paths;
  for (const std::string_view shard : shards) paths.push_back(index_path.parent_path() / shard);
  AppendedShards all = append_all(parsed.shard_format, paths, options, ops);
  TensorTable& table = all.set.table;
  table.set_metadata(merge(index_metadata(parsed.metadata_json, parsed.shard_format), all.common.value_or(TextMap())));
  table.finish();
  check_index(parsed.weight_map, table, shards, all.first_sources);
  return std::move(all.set);
}

}  // namespace weightstore
