#pragma once

// Bytes inside a pickle: protocol 3 and later have them as they are, protocol 2 spells them as text by a call of
// _codecs.encode.

#include <cstddef>
#include <optional>
#include <string_view>

#include "codec/memory_budget.h"
#include "codec/pickle_vm.h"

namespace weightstore::pytorch {

class PickledBytes {
 public:
  // nullopt when the node is no bytes. check_calls() has passed.
  static std::optional<PickledBytes> of(const PickleTree& tree, PickleTree::Node node);

  // No fewer bytes than there are.
  std::size_t most_bytes() const { return spelled_.size(); }

  // The bytes. Takes time and memory in proportion to most_bytes(). Throws kCorrupt for text with characters beyond
  // latin-1.
  ChargedString read(MemoryBudget& memory) const;

 private:
  PickledBytes(std::string_view spelled, bool is_text) : spelled_(spelled), is_text_(is_text) {}

  std::string_view spelled_;
  bool is_text_;  // the characters of the text are the bytes
};

}  // namespace weightstore::pytorch
