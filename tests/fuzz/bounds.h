#pragma once

// The promise that every target checks for every input: an operation on `size` bytes costs no more than a fixed number
// of bytes and steps for each of them, plus what the smallest input that has one of everything costs. Memory that a
// file asks for without having the bytes breaks the promise, and so does work that grows with the square of the input.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "costs.h"
#include "fuzzing.h"
#include "weightstore/error.h"

class Bounds {
 public:
  // For each byte of input. `peak` is what docs/security.md promises. Valid files of 5 to 50 KB took at most 11 bytes
  // allocated, 41 moved and 25 steps; hostile ones that the mutators made reached 31, 96 and 130. The limits are two to
  // three times the latter, so that what grows with the square of the input still passes them well below 64 KiB. A
  // target prints the highest that it saw.
  struct Factors {
    std::uint64_t peak = 24;
    std::uint64_t allocated = 96;
    std::uint64_t moved = 256;
    std::uint64_t steps = 256;
  };

  // Measures `operation` on `smallest`, which is the constant of the promise.
  template <class Operation>
  Bounds(const char* name, std::string_view smallest, Operation operation, Factors factors)
      : name_(name), factors_(factors) {
    operation(smallest);  // what is made once in a process
    const Meter meter;
    operation(smallest);
    constant_ = meter.costs();
    require(constant_.peak <= kMaxConstant);
  }
  template <class Operation>
  Bounds(const char* name, std::string_view smallest, Operation operation)
      : Bounds(name, smallest, operation, Factors()) {}

  Bounds(const Bounds&) = delete;
  Bounds& operator=(const Bounds&) = delete;

  ~Bounds() {
    std::fprintf(stderr,
                 "%s: at most %.1f bytes of memory (%.1f allocated, %.1f moved) and %.1f steps a byte; the smallest "
                 "input takes %llu (%llu, %llu) and %llu\n",
                 name_, highest_.peak, highest_.allocated, highest_.moved, highest_.steps, number(constant_.peak),
                 number(constant_.allocated), number(constant_.moved), number(constant_.steps));
  }

  // Runs `operation` on an input of `size` bytes. Aborts when it costs too much. The text of an Error that it throws is
  // short, and counts as input.
  template <class Operation>
  auto run(std::size_t size, Operation&& operation) {
    const Meter meter;
    try {
      if constexpr (std::is_void_v<decltype(operation())>) {
        operation();
        check(size, meter.costs());
      } else {
        auto result = operation();
        check(size, meter.costs());
        return result;
      }
    } catch (const weightstore::Error& error) {
      const Costs costs = meter.costs();
      const std::size_t text = std::strlen(error.what());
      require(text <= kMaxText);
      check(size + text, costs);
      throw;
    }
  }

 private:
  static constexpr std::uint64_t kMaxConstant = 64 << 10;
  // Two names of 256 bytes, of which each may be shown as four characters, and the words around them.
  static constexpr std::size_t kMaxText = 4096;
  // Ratios are worth printing where the constant no longer hides them.
  static constexpr std::size_t kTelling = 4096;

  struct Ratios {
    double peak = 0, allocated = 0, moved = 0, steps = 0;
  };

  static unsigned long long number(std::uint64_t n) { return n; }

  void check(std::size_t size, const Costs& costs) {
    check("bytes of memory", size, costs.peak, factors_.peak, constant_.peak, highest_.peak);
    check("bytes allocated", size, costs.allocated, factors_.allocated, constant_.allocated, highest_.allocated);
    check("bytes moved", size, costs.moved, factors_.moved, constant_.moved, highest_.moved);
    check("steps", size, costs.steps, factors_.steps, constant_.steps, highest_.steps);
  }

  void check(const char* what, std::size_t size, std::uint64_t cost, std::uint64_t factor, std::uint64_t constant,
             double& highest) const {
    if (size >= kTelling && cost > constant) {
      highest = std::max(highest, static_cast<double>(cost - constant) / static_cast<double>(size));
    }
    if (cost <= factor * size + constant) return;
    std::fprintf(stderr, "%s of %zu bytes takes %llu %s; at most %llu a byte and %llu are promised\n", name_, size,
                 number(cost), what, number(factor), number(constant));
    require(false);
  }

  const char* name_;
  Factors factors_;
  Costs constant_;
  Ratios highest_;
};
