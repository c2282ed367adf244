#pragma once

// What a producer makes.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "weightstore/byte_producer.h"

// All bytes, asked for in blocks as a writer does.
inline std::vector<std::byte> all_of(weightstore::ByteProducer& producer, std::size_t block) {
  std::vector<std::byte> out(producer.size());
  for (std::size_t done = 0; done < out.size(); done += block) {
    producer.fill(done, weightstore::MutableBytes(out).subspan(done, std::min(block, out.size() - done)));
  }
  producer.finished();
  return out;
}
