// Since torch 1.6: a ZIP archive with one root folder; `data.pkl` is the object, `data/<key>` the storages.

#include <charconv>
#include <string>

#include "base/checked.h"
#include "base/corrupt.h"
#include "codec/zip_directory.h"
#include "formats/pytorch/container.h"
#include "formats/pytorch/globals.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

constexpr std::uint64_t kSmallRecord = 64;
constexpr int kNewestVersion = 10;
// A compressed pickle is charged with this many bytes more for each of its bytes. Some instructions take a step and no
// memory, so that a few bytes of a file could ask for any number of steps.
constexpr std::uint64_t kInflatedWork = 3;

ZipDirectory read_directory(const ByteSource& source, const Limits& limits, std::shared_ptr<MemoryBudget> memory) {
  return ZipDirectory::read(source, {limits.zip_records, limits.pytorch_pickle_bytes}, std::move(memory));
}

// The folder that all records are below, with its slash; it has any name.
std::string find_root(const ZipDirectory& directory) {
  std::string root;
  for (std::size_t i = 0; i < directory.size(); ++i) {
    const std::string_view name = directory[i].name;
    const std::size_t slash = name.find('/');
    if (slash != std::string_view::npos && name.substr(slash + 1) == "data.pkl") root = name.substr(0, slash + 1);
  }
  if (root.empty()) {
    throw Error(ErrorCode::kUnsupported,
                "this is a ZIP archive without a data.pkl, so torch.save() did not write it; numpy.savez() may have");
  }
  if (root.size() > kMaxKeyBytes) throw corrupt("the folder of all records has a name of very many characters");
  const std::string data = root + "data/";
  for (std::size_t i = 0; i < directory.size(); ++i) {
    const ZipRecord& record = directory[i];
    if (!record.name.starts_with(root)) {
      throw corrupt("record '" + printable(record.name) + "' lies outside of the folder '" + printable(root) + "'")
          .at_offset(record.begin);
    }
    if (record.deflated && record.name.starts_with(data)) {
      throw Error(ErrorCode::kUnsupported,
                  "record '" + printable(record.name) + "' is compressed; torch.save() stores tensors as they are")
          .at_offset(record.begin);
    }
  }
  if (directory.find(root + "constants.pkl")) {
    throw Error(ErrorCode::kUnsupported,
                "this is a TorchScript archive, a program with its weights; load it with torch.jit.load() where it is "
                "trusted and save its state_dict()");
  }
  return root;
}

class ZipContainer final : public Container {
 public:
  ZipContainer(const ByteSource& source, const Limits& limits, std::shared_ptr<MemoryBudget> memory)
      : Container(memory), directory_(read_directory(source, limits, std::move(memory))), root_(find_root(directory_)) {
    check_version(source);
    read_byte_order(source);
    const std::size_t record = *directory_.find(root_ + "data.pkl");
    if (directory_[record].size > limits.pytorch_pickle_bytes) {
      throw Error(ErrorCode::kLimit, "a pickle of " + std::to_string(directory_[record].size) +
                                         " bytes; the limit is " + std::to_string(limits.pytorch_pickle_bytes));
    }
    if (directory_[record].deflated) memory_->take(kInflatedWork * directory_[record].size);
    pickle_ = directory_.content(source, record);
    pickle_offset_ = directory_[record].begin;
  }

  void bind(const PickleTree& tree, const Options& options) override {
    ChargedVector<Use> uses(directory_.size(), *memory_);
    storages_.reserve(persistent_count(tree));
    std::string name = root_ + "data/";
    const std::size_t prefix = name.size();
    for (std::size_t i = 0; i < tree.node_count(); ++i) {
      const auto node = static_cast<Node>(i);
      if (tree.kind(node) != PickleKind::kPersistent) continue;
      const auto id = parse_storage_id(tree, tree.persistent_id(node), false, options);
      name.resize(prefix);
      name += id->key;
      const auto record = directory_.find(name);
      if (!record) throw corrupt("the archive has no record '" + printable(name) + "' for a storage");
      storages_.emplace_back(node, storage_of(*id, *record, uses[*record]));
    }
  }

 private:
  struct Use {
    std::uint16_t storage_class = 0;
    bool seen = false;
  };

  Storage storage_of(const StorageId& id, std::size_t number, Use& use) const {
    const ZipRecord& record = directory_[number];
    const auto named = [&] { return "storage '" + printable(id.key) + "' "; };
    Storage storage = storage_of_class(id.storage_class);
    storage.begin = record.begin;
    storage.nbytes = record.size;
    storage.number = static_cast<std::uint32_t>(number);
    if (use.seen && use.storage_class != id.storage_class) throw corrupt(named() + "is referred to as of two types");
    use = {id.storage_class, true};
    const auto expected = checked_mul(id.numel, storage_item_bytes(id.storage_class));
    if (expected != record.size) {
      throw corrupt(named() + "has " + std::to_string(record.size) + " bytes; its " + std::to_string(id.numel) +
                    " elements take " + (expected ? std::to_string(*expected) : "more than 2^64"))
          .at_offset(record.begin);
    }
    return storage;
  }

  std::optional<ChargedString> small_record(const ByteSource& source, const char* name) const {
    const auto record = directory_.find(root_ + name);
    if (!record) return std::nullopt;
    if (directory_[*record].size > kSmallRecord) throw corrupt(std::string("record '") + name + "' is too long");
    return directory_.content(source, *record);
  }

  void check_version(const ByteSource& source) const {
    const auto text = small_record(source, "version");
    if (!text) throw corrupt("the archive has no record 'version'");
    int version = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), version);
    const std::string_view rest(end, static_cast<std::size_t>(text->data() + text->size() - end));
    if (error != std::errc() || (!rest.empty() && rest != "\n") || version < 1) {
      throw corrupt("the record 'version' says '" + printable(*text) + "'");
    }
    if (version > kNewestVersion) {
      throw Error(ErrorCode::kUnsupported, "archive version " + std::to_string(version) + "; versions up to " +
                                               std::to_string(kNewestVersion) + " are read");
    }
  }

  // Absent before torch 2.1, which only wrote little-endian.
  void read_byte_order(const ByteSource& source) {
    const auto text = small_record(source, "byteorder");
    if (!text || *text == "little") return;
    if (*text != "big") throw corrupt("the record 'byteorder' says '" + printable(*text) + "', not 'little' or 'big'");
    big_endian_ = true;
  }

  ZipDirectory directory_;
  const std::string root_;
};

}  // namespace

std::unique_ptr<Container> open_zip(const ByteSource& source, const Limits& limits,
                                    std::shared_ptr<MemoryBudget> memory) {
  return std::make_unique<ZipContainer>(source, limits, std::move(memory));
}

std::vector<StorageChecksum> read_zip_checksums(const ByteSource& source, const Limits& limits) {
  const ZipDirectory directory = read_directory(source, limits, nullptr);
  const std::string data = find_root(directory) + "data/";
  std::vector<StorageChecksum> result;
  result.reserve(directory.size());
  for (std::size_t i = 0; i < directory.size(); ++i) {
    const ZipRecord& record = directory[i];
    if (!record.name.starts_with(data)) continue;
    result.push_back({std::string(record.name), record.begin, record.end(), std::nullopt});
    if (record.has_crc()) result.back().crc = record.crc;
  }
  return result;
}

MemberChecksums::Member read_zip_pickle_member(const ByteSource& source, const Limits& limits) {
  const ZipDirectory directory = read_directory(source, limits, nullptr);
  const ZipRecord& record = directory[*directory.find(find_root(directory) + "data.pkl")];
  const auto crc = record.has_crc() ? std::optional(record.crc) : std::nullopt;
  return {std::string(record.name), record.begin, record.end(), record.size, crc, record.deflated};
}

}  // namespace weightstore::pytorch
