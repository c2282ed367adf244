#pragma once

// The part of weightstore's metadata entry that says which tensors of a checkpoint are chunks of larger tensors.
// docs/saver.md describes it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/tensor.h"
#include "weightstore/value.h"

namespace weightstore {

// The name of a chunk in a file: "w/0,64" is the chunk of "w" that begins at [0, 64].
std::string chunk_key(std::string_view tensor, const Shape& begin);

// A tensor of a file that is a chunk.
struct TensorChunk {
  std::size_t tensor = 0;  // number in the TensorTable
  std::string name;        // of the whole tensor
  Shape whole;             // its shape
  Shape begin;
};

// The chunks that `entry` describes, in the order of their numbers. Throws Error(kCorrupt) for a damaged entry.
std::vector<TensorChunk> find_tensor_chunks(const Value& entry, const TensorTable& table);

// Collects the tensors in chunks that an entry describes.
class ChunkDescriptions {
 public:
  void add(const std::string& name, const Shape& whole, const Shape& begin);
  bool empty() const { return tensors_.empty(); }
  // {"w": {"shape": [128, 128], "chunks": [[0, 0], [0, 64]]}}
  Value value() const;

 private:
  struct Tensor {
    Shape whole;
    std::set<Shape> begins;
  };
  std::map<std::string, Tensor> tensors_;
};

}  // namespace weightstore
