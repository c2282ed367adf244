#pragma once

// Names for the keys of dicts that are not text.

#include <optional>
#include <string>

#include "formats/pytorch/container.h"

namespace weightstore::pytorch {

// The longest name that a key other than text can have. Nested tuples may share their parts and unfold to any length.
inline constexpr std::size_t kMaxKeyText = 1024;

// A key as Python's str() shows it: 7, True, None, 1.5, b'x', (0, 'a'). Text is as it is. nullopt for objects, sets and
// keys of more than kMaxKeyText characters. `key` is not text of more characters: the caller takes that itself.
std::optional<std::string> key_text(const PickleTree& tree, Node key);

// The beginning of the key as Python's repr() shows it, for messages: 'a', 7, (0, 'a').
std::string key_repr(const PickleTree& tree, Node key);

}  // namespace weightstore::pytorch
