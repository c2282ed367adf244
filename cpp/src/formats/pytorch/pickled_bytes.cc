#include "formats/pytorch/pickled_bytes.h"

#include "base/corrupt.h"
#include "formats/pytorch/globals.h"

namespace weightstore::pytorch {

std::optional<PickledBytes> PickledBytes::of(const PickleTree& tree, PickleTree::Node node) {
  // bytearray(bytes), and bytes of bytes.
  while (tree.kind(node) == PickleKind::kObject) {
    const GlobalKind kind = called_kind(tree, node);
    if (kind != GlobalKind::kEncode && kind != GlobalKind::kByteArray) return std::nullopt;
    const PickleTree::Node arguments = tree.arguments(node);
    if (tree.count(arguments) == 0) return PickledBytes({}, false);
    const PickleTree::Node content = tree.item(arguments, 0);
    if (tree.count(arguments) == 2) return PickledBytes(tree.text(content), true);
    node = content;
  }
  // Python 2 had no other text than bytes. Its strings are text here when they are UTF-8.
  if (tree.kind(node) != PickleKind::kBytes && tree.kind(node) != PickleKind::kText) return std::nullopt;
  return PickledBytes(tree.text(node), false);
}

ChargedString PickledBytes::read(MemoryBudget& memory) const {
  if (!is_text_) return ChargedString(spelled_, memory);
  ChargedString bytes(memory);
  bytes.reserve(spelled_.size());
  for (std::size_t i = 0; i < spelled_.size(); ++i) {
    auto c = static_cast<unsigned char>(spelled_[i]);
    if (c >= 0x80) {
      if (c > 0xC3) throw corrupt("bytes spelled with characters beyond latin-1");
      c = static_cast<unsigned char>((c & 3) << 6 | (static_cast<unsigned char>(spelled_[++i]) & 0x3F));
    }
    bytes.push_back(static_cast<char>(c));
  }
  return bytes;
}

}  // namespace weightstore::pytorch
