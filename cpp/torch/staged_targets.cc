#include "staged_targets.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "weightstore/error.h"

// Which elements of two strided tensors are one in memory is costly to say; whether their memory can touch at all is
// not. So after the copies those that can touch are looked at: each must have the values that were loaded for it.

namespace weightstore::torch_bridge {
namespace {

struct Loaded {
  const std::string* name;
  const at::Tensor* target;
  const at::Tensor* copy;                  // null: loaded in place
  at::Tensor expected{};                   // values of one that was loaded in place, when it may be written over
  const std::string* neighbour = nullptr;  // one whose memory it may share
  std::uintptr_t begin = 0;                // of its memory
  std::uintptr_t end = 0;
};

Loaded loaded_target(const std::string& name, const at::Tensor& target, const at::Tensor* copy) {
  Loaded loaded{&name, &target, copy};
  if (target.numel() == 0 || !target.has_storage()) return loaded;
  const std::size_t bytes =
      at::detail::computeStorageNbytes(target.sizes(), target.strides(), target.dtype().itemsize());
  loaded.begin = reinterpret_cast<std::uintptr_t>(target.const_data_ptr());
  loaded.end = loaded.begin + bytes;
  return loaded;
}

// Notes a neighbour for all whose memory may touch another's.
void find_neighbours(std::vector<Loaded>& all) {
  std::vector<Loaded*> sorted;
  for (Loaded& each : all) {
    if (each.begin != each.end) sorted.push_back(&each);
  }
  std::sort(sorted.begin(), sorted.end(), [](const Loaded* a, const Loaded* b) { return a->begin < b->begin; });
  Loaded* furthest = nullptr;
  for (Loaded* each : sorted) {
    if (furthest != nullptr && each->begin < furthest->end) {
      each->neighbour = furthest->name;
      if (furthest->neighbour == nullptr) furthest->neighbour = each->name;
    }
    if (furthest == nullptr || each->end > furthest->end) furthest = each;
  }
}

bool same_bytes(const at::Tensor& target, const at::Tensor& expected) {
  const at::Tensor found = target.cpu().resolve_conj().resolve_neg().contiguous();
  return std::memcmp(found.const_data_ptr(), expected.const_data_ptr(), expected.nbytes()) == 0;
}

void check(const Loaded& loaded) {
  const at::Tensor& expected = loaded.copy != nullptr ? *loaded.copy : loaded.expected;
  if (!expected.defined() || expected.numel() == 0) return;
  const bool alone = loaded.neighbour == nullptr && at::has_internal_overlap(*loaded.target) == at::MemOverlap::No;
  if (alone || same_bytes(*loaded.target, expected)) return;
  const std::string with = loaded.neighbour != nullptr ? "'" + printable(*loaded.neighbour) + "'" : "itself";
  throw Error(ErrorCode::kInvalidArgument, "shares memory with " + with +
                                               ", but the checkpoint has different values for what they share, which "
                                               "now has some of both; load only one of them, or give each its own "
                                               "memory")
      .in_tensor(*loaded.name);
}

}  // namespace

void put_back(std::span<const StagedTarget> staged, std::span<const DirectTarget> direct,
              const std::set<std::string>& loaded) {
  std::vector<Loaded> all;
  for (const StagedTarget& each : staged) {
    if (loaded.contains(each.name)) all.push_back(loaded_target(each.name, each.target, &each.copy));
  }
  if (all.empty()) return;
  for (const DirectTarget& each : direct) {
    if (loaded.contains(each.name)) all.push_back(loaded_target(each.name, each.target, nullptr));
  }
  find_neighbours(all);
  for (Loaded& each : all) {
    if (each.copy == nullptr && each.neighbour != nullptr) each.expected = each.target->clone();
  }
  for (const Loaded& each : all) {
    if (each.copy != nullptr) each.target->copy_(*each.copy);
  }
  for (const Loaded& each : all) check(each);
}

}  // namespace weightstore::torch_bridge
