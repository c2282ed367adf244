#pragma once

// Dates, times and paths of Python's standard library as text.

#include <optional>
#include <string>

#include "formats/pytorch/container.h"

namespace weightstore::pytorch {

// A datetime, date or time in ISO 8601, such as "2024-01-31T12:00:00+01:00". nullopt when its bytes are no date, or its
// time zone is of a class that we do not know.
std::optional<std::string> date_text(const PickleTree& tree, Node date);

// A timedelta in seconds.
double seconds_of(const PickleTree& tree, Node delta);

// A time zone as its offset, "+01:00".
std::string offset_text(const PickleTree& tree, Node zone);

// The length of path_text(), or more.
std::size_t path_length(const PickleTree& tree, Node path);
std::string path_text(const PickleTree& tree, Node path);

}  // namespace weightstore::pytorch
