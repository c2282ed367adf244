#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "weightstore/byte_producer.h"

namespace weightstore::transform {

// A producer that converts the bytes of another, unit by unit: a unit of `from_bytes` becomes one of `to_bytes`, which
// depends on no other unit. `convert` is called with whole units. The input has whole units, and the output fits 64
// bits. Each fill() converts what it returns.
std::shared_ptr<ByteProducer> unit_bytes(std::shared_ptr<ByteProducer> input, std::size_t from_bytes,
                                         std::size_t to_bytes, std::function<void(ConstBytes, MutableBytes)> convert);

}  // namespace weightstore::transform
