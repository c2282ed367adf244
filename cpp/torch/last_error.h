#pragma once

// The details of errors. torch turns every exception into a RuntimeError and keeps only its text; the Python package
// asks here for the rest.

#include <string>
#include <utility>

#include "weightstore/error.h"

namespace weightstore::torch_bridge {

// A tensor with a shape but without values. The Python package raises its NoDataError, a kind of InvalidArgument, for
// it.
class NoDataError : public Error {
 public:
  explicit NoDataError(std::string message) : Error(ErrorCode::kInvalidArgument, std::move(message)) {}
};

// Keeps a copy of `error` for last_error() on this thread.
void remember(const Error& error);

// Code ("no_data" for a NoDataError), format, message, path, tensor, offset and errno of the last Error that a call of
// this library threw on this thread, as JSON; "{}" when there was none.
std::string last_error();

// Runs `body`. Remembers an Error that it throws, and throws it again.
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
