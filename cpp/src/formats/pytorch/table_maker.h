#pragma once

// From the values that a Flattener finds to the table of the file.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/pytorch/flatten.h"
#include "formats/pytorch/tensors.h"
#include "formats/pytorch/work_budget.h"
#include "weightstore/pytorch.h"

namespace weightstore::pytorch {

// Reads a tensor once, however many names and objects share it: two bytes of a pickle give it another name, and five
// make another object of the same arguments.
class TableMaker final : public FoundValues {
 public:
  // The tree, the container and the limits outlive the maker.
  TableMaker(const PickleTree& tree, const Container& container, std::shared_ptr<const ByteSource> source,
             const Limits& limits, Opaque opaque);

  bool tensor(std::string_view name, Node node) override;
  void left_out(std::string_view name, std::string type, std::string reason) override;

  // Throws kUnsupported when everything was left out, kCorrupt when a name was given twice.
  TensorTable finish();

 private:
  // What is known of a node that makes a tensor: the arguments of a call, an array, a persistent id.
  struct Known {
    GlobalKind kind = GlobalKind::kOpaque;
    bool is_read = false;      // a tensor of the table
    bool is_left_out = false;  // one of left_out_
    std::uint32_t number = 0;
  };

  void place(std::string_view name, Node node);
  void place(std::string_view name, const TensorCall& call);
  // Runs `read`, which adds the tensor to the table, unless `call` was read before.
  template <class Read>
  void place_once(std::string_view name, const TensorCall& call, Read read);
  [[noreturn]] void refuse_all() const;

  const PickleTree& tree_;
  const Container& container_;
  const Limits& limits_;
  const Opaque opaque_;
  MemoryBudget& memory_;
  TensorPlacer placer_;
  WorkBudget work_;
  ChargedVector<Known> known_;  // by node
  std::vector<LeftOut> left_out_;
};

}  // namespace weightstore::pytorch
