#pragma once

// How a load reads dense tensors: whole ones as they lie in their files, and parts of tensors, or tensors that lie in
// chunks, box by box. A part is read once, and little else.

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/checkpoint_index.h"
#include "checkpoint/load/load_plan.h"
#include "file/boxes/box_reader.h"
#include "io/progress_meter.h"

namespace weightstore::checkpoint {

class DenseReads {
 public:
  // Throws Error(kInvalidArgument) for targets that share memory and would get different values (shared_targets.h). The
  // index and the targets must outlive the object.
  DenseReads(const CheckpointIndex& index, std::span<const DenseLoad> loads);

  std::uint64_t bytes() const;
  std::vector<std::size_t> tensors() const;  // of the files, as numbers; one may be there several times
  void read(unsigned threads, io::ProgressMeter& meter) const;

 private:
  // Reads that may run at once.
  struct Group {
    std::vector<Reader::Request> whole;
    std::vector<WantedBox> boxes;
  };
  void add(const DenseLoad& load, Group& group) const;

  const CheckpointIndex& index_;
  std::vector<Group> groups_;  // all targets that share no memory; then each of the others alone
};

}  // namespace weightstore::checkpoint
