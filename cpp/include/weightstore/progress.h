#pragma once

// How a long operation reports its progress, and how a caller cancels it.

#include <cstdint>
#include <functional>
#include <string_view>

namespace weightstore {

// The operation calls this now and then with the bytes done, the total number of bytes and the name of a current
// tensor, and once at the end with done == total. It always calls from the thread that called the operation. Return
// false or throw to cancel: the operation then undoes what it has done, and throws Error(kCancelled) or your exception.
using Progress = std::function<bool(std::uint64_t done, std::uint64_t total, std::string_view name)>;

}  // namespace weightstore
