#include "weightstore/loader.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "checkpoint/load/load_plan.h"
#include "checkpoint/load/shared_targets.h"
#include "checkpoint/slice_ids.h"
#include "codec/json.h"
#include "file/bucket_range_text.h"
#include "io/parallel.h"
#include "table/names.h"
#include "weightstore/error.h"
#include "weightstore/hash_table.h"

namespace weightstore {
namespace {

using checkpoint::CheckpointIndex;
using checkpoint::CheckpointPart;
using checkpoint::TableJob;

constexpr std::int64_t kMaxParallel = 1024;
// What a thread reads at a time, of all columns together: this much, or its share of what all may.
constexpr std::uint64_t kChunkBytes = 2u << 20;
constexpr std::uint64_t kAllChunksBytes = 48u << 20;
// Rows of no use between two that are: reading them costs less than another system call.
constexpr std::uint64_t kGapBytes = 64u << 10;

// A part of a table whose ids may lie in the target's slice.
struct Unit {
  const TableJob* job;
  std::size_t part;
};

struct Run {
  std::size_t begin;
  std::size_t end;
};

// Rows of a chunk that hold all ids of the table's slice, in runs worth a read each. Ids that the table has to refuse
// are among them, whatever their slice.
std::vector<Run> useful_runs(std::span<const std::int64_t> ids, const HashTable& table, std::uint64_t widest_row) {
  const BucketRange& slice = table.slice();
  const bool coalesced = table.coalesced();
  const std::uint64_t gap = kGapBytes / std::max<std::uint64_t>(widest_row, 1);
  std::vector<Run> runs;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!slice.contains(ids[i]) && !(coalesced && child_of(ids[i]) != 0)) continue;
    if (!runs.empty() && i - runs.back().end <= gap) {
      runs.back().end = i + 1;
    } else {
      runs.push_back({i, i + 1});
    }
  }
  return runs;
}

// Reads one part chunk by chunk and gives it to the table.
class PartLoader {
 public:
  PartLoader(const CheckpointIndex& index, const Unit& unit, std::uint64_t chunk_bytes, const io::StopFlag& stop,
             std::atomic<std::uint64_t>& done)
      : reader_(index.reader()),
        true_slices_(index.has_true_slices()),
        job_(*unit.job),
        part_(unit.part),
        stop_(stop),
        done_(done) {
    std::uint64_t row_bytes = sizeof(std::int64_t);
    for (const TableJob::Slot& slot : job_.slots) {
      row_bytes += slot.row_bytes;
      widest_ = std::max(widest_, slot.row_bytes);
    }
    chunk_rows_ = std::max<std::uint64_t>(1, chunk_bytes / row_bytes);
  }

  void run() try {
    const CheckpointPart& ids = job_.ids->parts[part_];
    const BucketRange& slice = job_.table->slice();
    const bool inside = ids.slice.size == slice.size && ids.slice.begin >= slice.begin && ids.slice.end <= slice.end;
    const bool all = (true_slices_ && inside) || slice.end - slice.begin == slice.size;
    for (std::uint64_t first = 0; first < ids.rows && !stop_.is_set(); first += ids_.size()) {
      ids_.resize(static_cast<std::size_t>(std::min(chunk_rows_, ids.rows - first)));
      reader_.read_range(ids.tensor, first * sizeof(std::int64_t), std::as_writable_bytes(std::span(ids_)));
      done_ += ids_.size() * sizeof(std::int64_t);
      if (true_slices_) checkpoint::check_ids(ids_, ids.slice);
      if (all) {
        load({0, ids_.size()}, first);
        continue;
      }
      for (const Run& rows : useful_runs(ids_, *job_.table, widest_)) load(rows, first);
    }
  } catch (Error& error) {
    const TensorTable& table = reader_.table();
    const std::size_t ids = job_.ids->parts[part_].tensor;
    throw error.in_tensor(table.name(ids)).in_file(table.sources()[table.source_of(ids)]->name());
  }

 private:
  void load(const Run& rows, std::uint64_t first) {
    const std::size_t count = rows.end - rows.begin;
    buffers_.resize(job_.slots.size());
    std::vector<HashTable::SlotBytes> slots;
    for (std::size_t i = 0; i < job_.slots.size(); ++i) {
      const TableJob::Slot& slot = job_.slots[i];
      buffers_[i].resize(static_cast<std::size_t>(count * slot.row_bytes));
      reader_.read_range(slot.source->parts[part_].tensor, (first + rows.begin) * slot.row_bytes, buffers_[i]);
      done_ += buffers_[i].size();
      slots.push_back({slot.number, buffers_[i]});
    }
    job_.table->load_rows(job_.child, std::span(ids_).subspan(rows.begin, count), slots);
  }

  const Reader& reader_;
  const bool true_slices_;
  const TableJob& job_;
  const std::size_t part_;
  const io::StopFlag& stop_;
  std::atomic<std::uint64_t>& done_;
  std::uint64_t chunk_rows_ = 0;
  std::uint64_t widest_ = 0;
  std::vector<std::int64_t> ids_;
  std::vector<std::vector<std::byte>> buffers_;
};

std::uint64_t bytes_of(const TensorTable& table, const Unit& unit) {
  std::uint64_t bytes = table.nbytes(unit.job->ids->parts[unit.part].tensor);
  for (const TableJob::Slot& slot : unit.job->slots) bytes += table.nbytes(slot.source->parts[unit.part].tensor);
  return bytes;
}

// Rows of the part that a table with this slice can expect, if ids are spread evenly.
std::uint64_t expected_rows(const CheckpointPart& part, const BucketRange& slice) {
  if (part.slice.size != slice.size) return part.rows / slice.size * (slice.end - slice.begin);
  if (!may_share_ids(part.slice, slice)) return 0;
  const std::uint64_t width = part.slice.end - part.slice.begin;
  const std::uint64_t shared = std::min(part.slice.end, slice.end) - std::max(part.slice.begin, slice.begin);
  return width == 0 ? 0 : part.rows / width * shared + part.rows % width * shared / width;
}

std::vector<Unit> units_of(const checkpoint::LoadPlan& plan, const CheckpointIndex& index) {
  const TensorTable& table = index.reader().table();
  std::vector<Unit> units;
  for (const TableJob& job : plan.tables) {
    std::uint64_t rows = job.table->size();
    for (std::size_t i = 0; i < job.ids->parts.size(); ++i) {
      const CheckpointPart& part = job.ids->parts[i];
      const bool useful = !index.has_true_slices() || may_share_ids(part.slice, job.table->slice());
      if (part.rows == 0 || !useful) continue;
      rows += expected_rows(part, job.table->slice());
      units.push_back({&job, i});
    }
    job.table->reserve(rows);
  }
  // Largest first, so that no thread begins a long one when the others are done.
  std::stable_sort(units.begin(), units.end(),
                   [&](const Unit& a, const Unit& b) { return bytes_of(table, a) > bytes_of(table, b); });
  return units;
}

// What reads a dense tensor: its parts, one behind the other.
void append_requests(const TensorTable& table, const checkpoint::DenseJob& job,
                     std::vector<Reader::Request>& requests) {
  MutableBytes out = job.target->bytes;
  for (const CheckpointPart& part : job.source->parts) {
    const auto size = static_cast<std::size_t>(table.nbytes(part.tensor));
    requests.push_back({part.tensor, out.first(size)});
    out = out.subspan(size);
  }
}

// Throws unless all that is going to be read has a checksum.
void require_checksums(const Reader& reader, std::span<const Reader::Request> requests, std::span<const Unit> units) {
  const TensorTable& table = reader.table();
  const auto require = [&](std::size_t tensor) {
    if (table.nbytes(tensor) == 0 || reader.has_checksum(tensor)) return;
    throw Error(ErrorCode::kUnsupported,
                "the file has no checksum for it to verify; load without verifying, or save with checksums, which the "
                "plain layout has")
        .in_tensor(table.name(tensor))
        .in_file(table.sources()[table.source_of(tensor)]->name());
  };
  for (const Reader::Request& request : requests) require(request.tensor);
  for (const Unit& unit : units) {
    require(unit.job->ids->parts[unit.part].tensor);
    for (const TableJob::Slot& slot : unit.job->slots) require(slot.source->parts[unit.part].tensor);
  }
}

}  // namespace

LoadOptions load_options_from_json(std::string_view json, LoadOptions options) {
  const Value value = json_decode(json);
  const auto* map = value.get_if<Value::Map>();
  if (map == nullptr) throw Error(ErrorCode::kInvalidArgument, "the options of a load are a JSON object");
  for (const auto& [key, entry] : *map) {
    const std::string& name = *key.get_if<std::string>();
    const bool* flag = entry.get_if<bool>();
    if ((name != "strict" && name != "verify") || flag == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  "'" + printable(name) + "' is no option of a load; there are strict and verify, true or false");
    }
    (name == "strict" ? options.strict : options.verify) = *flag;
  }
  return options;
}

Loader::Loader(std::filesystem::path path, std::int64_t parallel, std::vector<std::shared_ptr<HashTable>> tables,
               std::vector<LoadTarget> tensors)
    : path_(std::move(path)),
      parallel_(static_cast<unsigned>(parallel)),
      tables_(std::move(tables)),
      tensors_(std::move(tensors)) {
  table::check_path(path_);
  if (parallel < 1 || parallel > kMaxParallel) {
    throw Error(ErrorCode::kInvalidArgument, "parallel is " + std::to_string(parallel) + "; it must be 1 to 1024");
  }
  std::set<std::string> names;
  for (const auto& table : tables_) {
    if (table == nullptr) throw Error(ErrorCode::kInvalidArgument, "a table to load into is null");
    for (const std::string& child : table->children()) {
      if (!names.insert(child).second)
        throw Error(ErrorCode::kInvalidArgument, "two tables are called so").in_tensor(child);
    }
  }
  const std::set<std::string> table_names = names;
  for (const LoadTarget& tensor : tensors_) {
    if (!names.insert(tensor.name).second) {
      const bool is_table = table_names.contains(tensor.name);
      throw Error(ErrorCode::kInvalidArgument, is_table ? "a table and a tensor are both called so; rename one of them"
                                                        : "two targets are called so")
          .in_tensor(tensor.name);
    }
    if (contiguous_bytes(tensor.dtype, tensor.shape) != tensor.bytes.size()) {
      throw Error(ErrorCode::kInvalidArgument, "its memory does not have the size of its type and shape")
          .in_tensor(tensor.name);
    }
    if (tensor.bytes.data() == nullptr && !tensor.bytes.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "has a null pointer for its memory").in_tensor(tensor.name);
    }
  }
}

std::string Loader::default_load_info() const { return checkpoint::default_info(tables_, tensors_); }

std::vector<std::string> Loader::load(std::string_view info) const try {
  ReadOptions read;
  read.threads = parallel_;
  read.verify = options_.verify ? Verify::kLazy : Verify::kOff;
  const auto index = checkpoint::CheckpointIndex::open(path_, read);
  const Reader& reader = index.reader();
  const checkpoint::LoadPlan plan = checkpoint::plan_load(index, tables_, tensors_, info, options_.strict);

  const checkpoint::DenseOrder order = checkpoint::order_dense(reader, plan.dense);
  const std::vector<Unit> units = units_of(plan, index);
  std::vector<Reader::Request> requests;
  for (const checkpoint::DenseJob& job : order.together) append_requests(reader.table(), job, requests);
  const std::size_t together = requests.size();
  for (const checkpoint::DenseJob& job : order.one_by_one) append_requests(reader.table(), job, requests);
  std::uint64_t dense_bytes = 0;
  for (const Reader::Request& request : requests) dense_bytes += request.out.size();
  std::uint64_t total = dense_bytes;
  if (options_.verify) require_checksums(reader, requests, units);
  for (const Unit& unit : units) total += bytes_of(reader.table(), unit);
  const auto report = [&](std::uint64_t done, std::string_view name) {
    if (options_.progress && !options_.progress(done, total, name)) {
      throw Error(ErrorCode::kCancelled, "loading was cancelled; what was loaded so far stays");
    }
  };
  std::uint64_t dense_done = 0;
  const auto read_dense = [&](std::span<const Reader::Request> some) {
    reader.read_many(some, [&](std::uint64_t done, std::uint64_t, std::string_view name) {
      if (dense_done + done < total) report(dense_done + done, name);
      return true;
    });
    for (const Reader::Request& request : some) dense_done += request.out.size();
  };
  read_dense(std::span(requests).first(together));
  for (std::size_t i = together; i < requests.size(); ++i) read_dense(std::span(requests).subspan(i, 1));
  std::atomic<std::uint64_t> done = dense_bytes;
  std::atomic<std::size_t> next = 0;
  const auto threads = static_cast<unsigned>(std::min<std::size_t>(parallel_, units.size()));
  const std::uint64_t chunk_bytes = std::min(kChunkBytes, kAllChunksBytes / std::max(threads, 1u));
  io::run_parallel(
      threads,
      [&](unsigned, const io::StopFlag& stop) {
        while (!stop.is_set()) {
          const std::size_t k = next.fetch_add(1);
          if (k >= units.size()) return;
          PartLoader(index, units[k], chunk_bytes, stop, done).run();
        }
      },
      [&] { report(std::min(done.load(), total - 1), "tables"); });
  // It is done, and cannot be cancelled any more.
  if (options_.progress) options_.progress(total, total, "");
  std::vector<std::string> loaded;
  for (const checkpoint::DenseJob& job : plan.dense) loaded.push_back(job.target->name);
  return loaded;
} catch (Error& error) {
  error.in_file(path_.native());
  throw;
}

}  // namespace weightstore
