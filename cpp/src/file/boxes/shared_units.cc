#include "file/boxes/shared_units.h"

#include <algorithm>
#include <cstring>

namespace weightstore {

std::vector<SharedUnit> shared_units(std::span<const PlannedBox> boxes) {
  std::vector<SharedUnit> units;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const NewBox& box = *boxes[i].box;
    if (!box.shared || boxes[i].runs.bytes() == 0) continue;
    const BoxRuns& runs = boxes[i].runs;
    std::uint64_t block = box.shared->first_block;
    for (std::uint64_t begin = box.shared->begin; begin < box.shared->end; ++block) {
      const std::uint64_t until = io::kChunkBytes - (box.begin + begin) % io::kChunkBytes;
      const std::uint64_t end = std::min(begin + until, box.shared->end);
      const std::uint64_t first = runs.count_while([&](std::uint64_t at) { return at + runs.run_bytes() <= begin; });
      const std::uint64_t last = runs.count_while([&](std::uint64_t at) { return at < end; });
      if (first < last) units.push_back({block, i, begin, end, first, last});
      begin = end;
    }
  }
  std::stable_sort(units.begin(), units.end(),
                   [](const SharedUnit& a, const SharedUnit& b) { return a.block < b.block; });
  return units;
}

std::uint64_t copy_runs(const SharedUnit& unit, const PlannedBox& planned, MutableBytes block, BoxScratch& scratch) {
  const BoxRuns& runs = planned.runs;
  const auto begin_of = [&](std::uint64_t run) { return std::max(runs.offset_of(run), unit.begin); };
  const auto end_of = [&](std::uint64_t run) { return std::min(runs.offset_of(run) + runs.run_bytes(), unit.end); };
  const auto in_box = [&](std::uint64_t run, std::uint64_t at) {
    return run * runs.run_bytes() + (at - runs.offset_of(run));
  };
  const std::uint64_t from = in_box(unit.first, begin_of(unit.first));
  const std::uint64_t size = in_box(unit.last - 1, end_of(unit.last - 1)) - from;
  ConstBytes bytes;
  if (const auto resident = planned.values.resident()) {
    bytes = resident->subspan(from, size);
  } else {
    const MutableBytes room = scratch.room(0, size);
    planned.values.read(from, room);
    bytes = room;
  }
  for (std::uint64_t run = unit.first; run < unit.last; ++run) {
    const std::uint64_t begin = begin_of(run);
    const std::uint64_t count = end_of(run) - begin;
    std::memcpy(block.data() + (begin - unit.begin), bytes.data(), count);
    bytes = bytes.subspan(count);
  }
  return size;
}

}  // namespace weightstore
