#pragma once

// How a long operation tells where it is, and how a caller stops it.

#include <cstdint>
#include <functional>
#include <string_view>

namespace weightstore {

// Called now and then with the bytes done, the bytes in all and the name of a tensor being worked on, and once at the
// end with done == total; always from the thread that called the operation. Return false, or throw, to stop: the
// operation then undoes what it began and throws Error(kCancelled), or what was thrown.
using Progress = std::function<bool(std::uint64_t done, std::uint64_t total, std::string_view name)>;

}  // namespace weightstore
