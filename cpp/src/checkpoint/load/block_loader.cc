#include "checkpoint/load/block_loader.h"

#include <algorithm>
#include <span>

#include "checkpoint/check_ids.h"
#include "file/bucket_range_text.h"
#include "io/parallel.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

// How much a thread reads at a time, of all columns together: kChunkBytes, or its share of kAllChunksBytes.
constexpr std::uint64_t kChunkBytes = 2u << 20;
constexpr std::uint64_t kAllChunksBytes = 48u << 20;
// Reading this many useless bytes between two useful rows costs less than another system call.
constexpr std::uint64_t kGapBytes = 64u << 10;

// The rows [begin, end) of a chunk.
struct Run {
  std::size_t begin;
  std::size_t end;
};

// Runs of rows that have all ids in the buckets of the table; each run is one read. The runs also have the ids that the
// table has to refuse (too large for a child), whatever their buckets.
std::vector<Run> useful_runs(std::span<const std::int64_t> ids, const HashTable& table, std::uint64_t widest_row) {
  const BucketRange& buckets = table.buckets();
  const bool coalesced = table.coalesced();
  const std::uint64_t gap = kGapBytes / std::max<std::uint64_t>(widest_row, 1);
  std::vector<Run> runs;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!buckets.contains(ids[i]) && !(coalesced && child_of(ids[i]) != 0)) continue;
    if (!runs.empty() && i - runs.back().end <= gap) {
      runs.back().end = i + 1;
    } else {
      runs.push_back({i, i + 1});
    }
  }
  return runs;
}

// Reads one block chunk by chunk and inserts its rows into the table.
class BlockLoader {
 public:
  BlockLoader(const CheckpointIndex& index, const BlockLoad& block, std::uint64_t chunk_bytes, const io::StopFlag& stop,
              io::ProgressMeter& meter)
      : reader_(index.reader()),
        check_ids_(index.ids_match_buckets()),
        load_(*block.load),
        block_(block.block),
        stop_(stop),
        meter_(meter) {
    std::uint64_t row_bytes = sizeof(std::int64_t);
    for (const TableLoad::Slot& slot : load_.slots) {
      row_bytes += slot.row_bytes;
      widest_ = std::max(widest_, slot.row_bytes);
    }
    chunk_rows_ = std::max<std::uint64_t>(1, chunk_bytes / row_bytes);
  }

  void run() try {
    const CheckpointBlock& ids = load_.ids->blocks[block_];
    const BucketRange& buckets = load_.table->buckets();
    const bool inside =
        ids.buckets.size == buckets.size && ids.buckets.begin >= buckets.begin && ids.buckets.end <= buckets.end;
    const bool all = (check_ids_ && inside) || buckets.end - buckets.begin == buckets.size;
    for (std::uint64_t first = 0; first < ids.rows && !stop_.is_set(); first += ids_.size()) {
      ids_.resize(static_cast<std::size_t>(std::min(chunk_rows_, ids.rows - first)));
      reader_.read_range(ids.tensor, first * sizeof(std::int64_t), std::as_writable_bytes(std::span(ids_)));
      meter_.add(ids_.size() * sizeof(std::int64_t), "tables");
      if (check_ids_) check_ids(ids_, ids.buckets);
      if (all) {
        load_run({0, ids_.size()}, first);
        continue;
      }
      for (const Run& rows : useful_runs(ids_, *load_.table, widest_)) load_run(rows, first);
    }
  } catch (Error& error) {
    const TensorTable& table = reader_.table();
    const std::size_t ids = load_.ids->blocks[block_].tensor;
    throw error.in_tensor(table.name(ids)).in_file(table.sources()[table.source_of(ids)]->name());
  }

 private:
  void load_run(const Run& rows, std::uint64_t first) {
    const std::size_t count = rows.end - rows.begin;
    buffers_.resize(load_.slots.size());
    std::vector<HashTable::SlotBytes> slots;
    for (std::size_t i = 0; i < load_.slots.size(); ++i) {
      const TableLoad::Slot& slot = load_.slots[i];
      buffers_[i].resize(static_cast<std::size_t>(count * slot.row_bytes));
      reader_.read_range(slot.source->blocks[block_].tensor, (first + rows.begin) * slot.row_bytes, buffers_[i]);
      meter_.add(buffers_[i].size(), "tables");
      slots.push_back({slot.number, buffers_[i]});
    }
    load_.table->load_rows(load_.child, std::span(ids_).subspan(rows.begin, count), slots);
  }

  const Reader& reader_;
  const bool check_ids_;
  const TableLoad& load_;
  const std::size_t block_;
  const io::StopFlag& stop_;
  io::ProgressMeter& meter_;
  std::uint64_t chunk_rows_ = 0;
  std::uint64_t widest_ = 0;
  std::vector<std::int64_t> ids_;
  std::vector<std::vector<std::byte>> buffers_;
};

// How many rows of the block have ids in these buckets, if the ids are spread evenly.
std::uint64_t expected_rows(const CheckpointBlock& block, const BucketRange& buckets) {
  if (block.buckets.size != buckets.size) return block.rows / buckets.size * (buckets.end - buckets.begin);
  if (!may_share_ids(block.buckets, buckets)) return 0;
  const std::uint64_t width = block.buckets.end - block.buckets.begin;
  const std::uint64_t shared = std::min(block.buckets.end, buckets.end) - std::max(block.buckets.begin, buckets.begin);
  return width == 0 ? 0 : block.rows / width * shared + block.rows % width * shared / width;
}

}  // namespace

std::uint64_t bytes_of(const TensorTable& table, const BlockLoad& block) {
  std::uint64_t bytes = table.nbytes(block.load->ids->blocks[block.block].tensor);
  for (const TableLoad::Slot& slot : block.load->slots) bytes += table.nbytes(slot.source->blocks[block.block].tensor);
  return bytes;
}

std::vector<BlockLoad> blocks_to_load(const LoadPlan& plan, const CheckpointIndex& index) {
  const TensorTable& table = index.reader().table();
  std::vector<BlockLoad> loads;
  for (const TableLoad& load : plan.tables) {
    std::uint64_t rows = load.table->size();
    for (std::size_t i = 0; i < load.ids->blocks.size(); ++i) {
      const CheckpointBlock& block = load.ids->blocks[i];
      const bool useful = !index.ids_match_buckets() || may_share_ids(block.buckets, load.table->buckets());
      if (block.rows == 0 || !useful) continue;
      rows += expected_rows(block, load.table->buckets());
      loads.push_back({&load, i});
    }
    load.table->reserve(rows);
  }
  // The largest first, so that no thread begins a large block when the others are done.
  std::stable_sort(loads.begin(), loads.end(),
                   [&](const BlockLoad& a, const BlockLoad& b) { return bytes_of(table, a) > bytes_of(table, b); });
  return loads;
}

void load_blocks(const CheckpointIndex& index, const std::vector<BlockLoad>& blocks, unsigned threads,
                 io::ProgressMeter& meter) {
  const std::size_t workers = std::clamp<std::size_t>(blocks.size(), 1, threads);
  const std::uint64_t chunk_bytes = std::min(kChunkBytes, kAllChunksBytes / workers);
  io::parallel_for(
      blocks.size(), threads,
      [&](std::size_t i, const io::Worker& worker) {
        BlockLoader(index, blocks[i], chunk_bytes, worker.stop, meter).run();
      },
      [&] { meter.report(); });
}

}  // namespace weightstore::checkpoint
