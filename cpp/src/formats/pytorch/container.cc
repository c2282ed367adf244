#include "formats/pytorch/container.h"

#include <algorithm>

#include "base/corrupt.h"
#include "codec/pickle_ops.h"
#include "formats/pytorch/globals.h"
#include "formats/pytorch/signature.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

bool is_text(const PickleTree& tree, Node node, std::string_view text) {
  return tree.kind(node) == PickleKind::kText && tree.text(node) == text;
}

std::string read_head(const ByteSource& source) {
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), kSignatureBytes)), '\0');
  source.read_at(0, std::as_writable_bytes(std::span(head)));
  return head;
}

}  // namespace

std::vector<StorageChecksum> read_checksums(const ByteSource& source, const Limits& limits) {
  if (!is_zip(read_head(source))) return {};
  return read_zip_checksums(source, limits);
}

std::optional<MemberChecksums::Member> read_pickle_member(const ByteSource& source, const Limits& limits) {
  if (!is_zip(read_head(source))) return std::nullopt;
  return read_zip_pickle_member(source, limits);
}

const Storage* Container::storage(Node persistent) const {
  const auto found = std::lower_bound(storages_.begin(), storages_.end(), persistent,
                                      [](const auto& entry, Node node) { return entry.first < node; });
  return found != storages_.end() && found->first == persistent ? &found->second : nullptr;
}

std::unique_ptr<Container> open_container(const ByteSource& source, const Limits& limits,
                                          std::shared_ptr<MemoryBudget> memory) {
  const std::string head = read_head(source);
  if (is_zip(head)) return open_zip(source, limits, std::move(memory));
  if (is_stream(head)) return open_stream(source, limits, std::move(memory));
  if (is_pickle(head)) return open_plain(source, limits, std::move(memory), false);
  if (is_text_pickle(head)) return open_plain(source, limits, std::move(memory), true);
  if (is_tar(head)) return open_tar(source, limits, std::move(memory));
  throw Error(ErrorCode::kUnsupported, "this is neither a file of torch.save() nor a pickle");
}

std::optional<StorageId> parse_storage_id(const PickleTree& tree, Node id, bool stream, const Options& options) {
  if (tree.kind(id) != PickleKind::kTuple || tree.count(id) < 2) throw corrupt("a persistent id that is no storage");
  const std::size_t count = tree.count(id);
  if (is_text(tree, tree.item(id, 0), "module") && stream && count == 4) {
    if (options.opaque == Opaque::kSkip) return std::nullopt;
    throw Error(ErrorCode::kUnsupported,
                "the file holds a whole model, with the source of its classes; to read its tensors, open it with "
                "opaque=\"skip\" (C++: Opaque::kSkip)");
  }
  if (!is_text(tree, tree.item(id, 0), "storage") || count != (stream ? 6u : 5u)) {
    throw corrupt("a persistent id that is no storage");
  }
  const Node storage_class = tree.item(id, 1);
  const Node key = tree.item(id, 2);
  if (tree.kind(storage_class) != PickleKind::kGlobal ||
      kind_of(tree.global_id(storage_class)) != GlobalKind::kStorage) {
    throw corrupt("a storage of a class that is none");
  }
  if (tree.kind(key) != PickleKind::kText || tree.kind(tree.item(id, 3)) != PickleKind::kText) {
    throw corrupt("a storage whose key or location is no text");
  }
  if (tree.text(key).size() > kMaxKeyBytes) throw corrupt("a storage with a key of very many characters");
  StorageId result;
  result.storage_class = tree.global_id(storage_class);
  result.key = tree.text(key);
  result.numel = natural(tree, tree.item(id, 4), "elements of a storage");
  if (stream && tree.kind(tree.item(id, 5)) != PickleKind::kNone) {
    const Node view = tree.item(id, 5);
    if (tree.kind(view) != PickleKind::kTuple || tree.count(view) != 3)
      throw corrupt("a view of a storage that is none");
    result.view = {natural(tree, tree.item(view, 1), "the offset of a view"),
                   natural(tree, tree.item(view, 2), "elements of a view")};
  }
  return result;
}

Storage storage_of_class(std::uint16_t storage_class) {
  Storage storage;
  storage.dtype = dtype_of(storage_class);
  storage.quantized = !storage.dtype && !is_untyped_storage(storage_class);
  return storage;
}

std::size_t persistent_count(const PickleTree& tree) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < tree.node_count(); ++i) {
    if (tree.kind(static_cast<Node>(i)) == PickleKind::kPersistent) ++count;
  }
  return count;
}

std::uint64_t natural(const PickleTree& tree, Node node, const char* what) {
  if (tree.kind(node) != PickleKind::kInt) throw corrupt(std::string(what) + ": not an integer of 64 bits");
  if (tree.integer(node) < 0) throw corrupt(std::string(what) + ": " + std::to_string(tree.integer(node)));
  return static_cast<std::uint64_t>(tree.integer(node));
}

std::string_view shown_name(std::string_view name) {
  std::size_t length = std::min<std::size_t>(name.size(), 1024);
  // Not through the middle of a character.
  while (length < name.size() && length > 0 && (static_cast<unsigned char>(name[length]) & 0xC0) == 0x80) --length;
  return name.substr(0, length);
}

ChargedString read_pickle(const ByteSource& source, std::uint64_t offset, std::uint64_t end, std::uint64_t limit,
                          MemoryBudget& memory) {
  const std::uint64_t most = std::min(end - offset, limit);
  ChargedString bytes(memory);
  for (std::uint64_t window = std::min<std::uint64_t>(most, 4096);; window = std::min(most, window * 8)) {
    const std::size_t had = bytes.size();
    bytes.resize(static_cast<std::size_t>(window));
    source.read_at(offset + had, std::as_writable_bytes(std::span(bytes).subspan(had)));
    std::optional<std::size_t> length;
    try {
      length = pickle_length(std::as_bytes(std::span(bytes)));
    } catch (Error& error) {
      error.shift_offset(offset);
      throw;
    }
    if (length) {
      bytes.resize(*length);
      return bytes;
    }
    if (window < most) continue;
    if (most < end - offset) {
      throw Error(ErrorCode::kLimit, "a pickle of more than " + std::to_string(limit) + " bytes").at_offset(offset);
    }
    throw corrupt("the file ends inside a pickle").at_offset(offset);
  }
}

}  // namespace weightstore::pytorch
