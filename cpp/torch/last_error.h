#pragma once

// What TorchScript cannot say: torch turns every exception into a RuntimeError with its text. The Python side asks here
// for the rest.

#include <string>
#include <utility>

#include "weightstore/error.h"

namespace weightstore::torch_bridge {

// Keeps a copy of `error` for last_error() on this thread.
void remember(const Error& error);

// Code, format, message, path, tensor, offset and errno of the Error that was last thrown out of a call of this library
// on this thread, as JSON; "{}" when there was none.
std::string last_error();

// Runs `body`, whose Error is remembered and goes on.
template <class Body>
auto guarded(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error& error) {
    remember(error);
    throw;
  }
}

}  // namespace weightstore::torch_bridge
