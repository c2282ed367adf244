#include "file/split_model.h"

#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "formats/gguf/split.h"
#include "formats/registry.h"
#include "io/descriptor_limit.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

// What the name of a part ends in: "-00002-of-00003.gguf".
std::string name_ending(const FilePart& part, const FormatSpec& spec) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "-%05u-of-%05u", part.number + 1, part.count);
  return text.data() + std::string(spec.endings.front());
}

std::string described(const FilePart& part) {
  return "part " + std::to_string(part.number + 1) + " of " + std::to_string(part.count) + " of a model";
}

// The name without its ending.
std::string stem_of(const std::filesystem::path& path, const FilePart& part, const FormatSpec& spec) {
  const std::string name = path.filename().string();
  const std::string ending = name_ending(part, spec);
  if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  throw Error(ErrorCode::kUnsupported, "this is " + described(part) + ", so that its name has to end in '" + ending +
                                           "'; without that the other parts cannot be found");
}

void check_part(const std::optional<FilePart>& found, const FilePart& wanted) {
  if (!found) throw Error(ErrorCode::kCorrupt, "is named as " + described(wanted) + ", but is a model of its own");
  if (found->number == wanted.number && found->count == wanted.count && found->tensors == wanted.tensors) return;
  throw Error(ErrorCode::kCorrupt, "is named as " + described(wanted) + ", but says that it is " + described(*found) +
                                       "; the files are not of one model");
}

// The metadata of the model: those of its first file, without the entries that are about that file.
void set_metadata(TensorTable& table, const TensorTable& first) {
  const auto is_own = [](std::string_view key) { return gguf::is_split_key(key) || key == kChecksumKey; };
  TextMap text;
  for (std::size_t i = 0; i < first.metadata().size(); ++i) {
    if (!is_own(first.metadata().key(i))) text.add(first.metadata().key(i), first.metadata().value(i));
  }
  table.set_metadata(std::move(text));
  TypedMetadata typed;
  const TypedMetadata& all = *first.typed_metadata();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!is_own(all.key(i))) typed.add(all.key(i), all.value(i).type(), all.value(i).encoded());
  }
  table.set_typed_metadata(std::make_shared<const TypedMetadata>(std::move(typed)));
}

}  // namespace

ShardSet open_split_model(const std::filesystem::path& path, Format format, const FilePart& part,
                          const ReadOptions& options, io::FileOps& ops) {
  const FormatSpec& spec = spec_of(format);
  const std::string stem = stem_of(path, part, spec);
  io::make_room_for(part.count);
  ShardSet set;
  set.shard_format = format;
  for (std::uint32_t number = 0; number < part.count; ++number) {
    const FilePart wanted{number, part.count, part.tensors};
    const std::filesystem::path file_path = path.parent_path() / (stem + name_ending(wanted, spec));
    try {
      auto source = open_member(file_path, part.count, options.map, ops);
      if (detect_format(*source) != format) {
        throw Error(ErrorCode::kUnsupported,
                    "is named as " + described(wanted) + ", but is not " + std::string(spec.described));
      }
      const OpenedFile file = spec.open(std::move(source), options);
      check_part(file.part, wanted);
      if (number == 0) set_metadata(set.table, file.table);
      if (const auto entry = file.table.metadata().find(kChecksumKey)) {
        set.checksum_entries.push_back({std::string(*entry), static_cast<std::uint32_t>(set.table.sources().size())});
      }
      set.table.append(file.table);
    } catch (Error& error) {
      throw error.in_file(file_path.string());
    }
  }
  set.table.finish();
  if (part.tensors && *part.tensors != set.table.size()) {
    throw Error(ErrorCode::kCorrupt, "the parts have " + std::to_string(set.table.size()) +
                                         " tensors together; the model says that there are " +
                                         std::to_string(*part.tensors));
  }
  return set;
}

Error part_without_path(const FilePart& part) {
  return Error(ErrorCode::kUnsupported,
               "this is " + described(part) + "; open it by its path, so that the other parts are found beside it");
}

}  // namespace weightstore
