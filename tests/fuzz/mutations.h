#pragma once

// What custom mutators are made of. Only fuzz builds have mutators.

#include <cstddef>
#include <cstdint>
#include <string>

namespace mutations {

// A small generator of random numbers (SplitMix64): the same numbers for the same seed, as libFuzzer demands.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next();
  // Below `end`, which is not 0.
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(next() % end); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  // A number of repetitions, at most `most`: often few, sometimes very many.
  std::size_t repetitions(std::size_t most);
  // A number that parsers may stumble over: small, or close to a power of two, or anything.
  std::uint64_t number();

 private:
  std::uint64_t state_;
};

// What libFuzzer itself does to bytes: flips, insertions, pieces of other inputs, constants that the library compares
// with.
std::string mutate_bytes(std::string bytes, std::size_t max_size);

// Repeats a part of `bytes`: how an input becomes large, and how work that grows with its square shows.
std::string repeat_part(Random& random, std::string bytes, std::size_t max_size);

// One of the two.
std::string mutate_or_repeat(Random& random, std::string bytes, std::size_t max_size);

void put_little_endian(std::string& out, std::uint64_t n, int bytes);

// What a custom mutator is: the file, changed. Each mutate_<kind>.cc has one, and each target links one of them. A
// result of more than `max_size` bytes is dropped.
std::string mutate_file(Random& random, std::string file, std::size_t max_size);

}  // namespace mutations
