#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/check_ids.h"
#include "checkpoint/checkpoint_index.h"
#include "io/parallel.h"
#include "io/progress_meter.h"
#include "weightstore/error.h"
#include "weightstore/loader.h"

namespace weightstore {

using checkpoint::CheckpointBlock;
using checkpoint::CheckpointIndex;
using checkpoint::CheckpointTensor;

namespace {

constexpr std::uint64_t kIdsAtOnce = 1u << 17;

// Throws unless every column of a table has the same blocks as its ids.
void check_columns(const CheckpointIndex& index) {
  for (const auto& [name, tensor] : index.tensors()) {
    if (!tensor.column) continue;
    const std::string ids = name.substr(0, name.rfind('@')) + "@id";
    const CheckpointTensor* of_table = index.find(ids);
    if (of_table == nullptr) throw Error(ErrorCode::kCorrupt, "its table has no ids").in_tensor(name);
    const auto same = [](const CheckpointBlock& a, const CheckpointBlock& b) {
      return a.buckets == b.buckets && a.rows == b.rows;
    };
    if (!std::equal(tensor.blocks.begin(), tensor.blocks.end(), of_table->blocks.begin(), of_table->blocks.end(),
                    same)) {
      throw Error(ErrorCode::kCorrupt, "its blocks are not those of '" + printable(ids) + "'").in_tensor(name);
    }
  }
}

// The blocks of ids that are checked against their buckets.
std::vector<CheckpointBlock> id_blocks(const CheckpointIndex& index) {
  std::vector<CheckpointBlock> blocks;
  if (!index.ids_match_buckets()) return blocks;
  for (const auto& [name, tensor] : index.tensors()) {
    if (tensor.column && name.ends_with("@id")) blocks.insert(blocks.end(), tensor.blocks.begin(), tensor.blocks.end());
  }
  return blocks;
}

// Checks the ids of one block, and counts their bytes.
void check_block(const Reader& reader, const CheckpointBlock& block, const io::StopFlag& stop,
                 io::ProgressMeter& meter) try {
  std::vector<std::int64_t> ids;
  for (std::uint64_t first = 0; first < block.rows && !stop.is_set(); first += ids.size()) {
    ids.resize(static_cast<std::size_t>(std::min(kIdsAtOnce, block.rows - first)));
    reader.read_range(block.tensor, first * sizeof(std::int64_t), std::as_writable_bytes(std::span(ids)));
    checkpoint::check_ids(ids, block.buckets);
    meter.add(ids.size() * sizeof(std::int64_t), "ids");
  }
} catch (Error& error) {
  const TensorTable& table = reader.table();
  throw error.in_tensor(table.name(block.tensor)).in_file(table.sources()[table.source_of(block.tensor)]->name());
}

// Throws unless every tensor with bytes has a checksum. `right` is the number of checksums that were compared. The
// recis layout has no place for checksums.
void require_checksums(const CheckpointIndex& index, std::size_t right) {
  const Reader& reader = index.reader();
  const TensorTable& table = reader.table();
  if (!index.ids_match_buckets()) return;
  std::size_t lacking = 0;
  std::size_t last = 0;
  for (const std::size_t tensor : reader.without_checksum()) {
    if (table.nbytes(tensor) == 0) continue;
    ++lacking;
    last = tensor;
  }
  if (lacking == 0) return;
  throw Error(ErrorCode::kUnsupported,
              "the tensors fit each other and " + std::to_string(right) + " checksums are right, but " +
                  std::to_string(lacking) + " of " + std::to_string(table.size()) + " tensors, such as '" +
                  printable(table.name(last)) + "', have no checksum; save or convert with checksums");
}

}  // namespace

// An error that names no file of the checkpoint names the path of the checkpoint.
struct CheckpointReader::State {
  CheckpointIndex index;
  std::string path;
  unsigned threads;
};

CheckpointReader::CheckpointReader(const std::filesystem::path& path, const ReadOptions& options)
    : state_(
          std::make_unique<const State>(State{CheckpointIndex::open(path, options), path.native(), options.threads})) {}

CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;

std::vector<std::string> CheckpointReader::tensor_names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state_->index.tensors()) names.push_back(name);
  return names;
}

bool CheckpointReader::contains(std::string_view name) const { return state_->index.find(name) != nullptr; }

std::map<std::string, std::vector<std::string>> CheckpointReader::tables() const {
  std::map<std::string, std::vector<std::string>> tables;
  for (const auto& [name, tensor] : state_->index.tensors()) {
    if (!tensor.column) continue;
    const std::size_t at = name.rfind('@');
    tables[name.substr(0, at)].push_back(name.substr(at + 1));
  }
  return tables;
}

TensorInfo CheckpointReader::info(std::string_view name) const try {
  const CheckpointTensor& tensor = state_->index.at(name);
  TensorInfo info = state_->index.reader().table()[tensor.blocks.front().tensor];
  info.name = name;
  info.shape = tensor.shape;
  return info;
} catch (Error& error) {
  throw error.in_file(state_->path);
}

std::vector<CheckpointReader::Block> CheckpointReader::blocks(std::string_view name) const try {
  const CheckpointTensor& tensor = state_->index.at(name);
  std::vector<Block> blocks;
  if (!tensor.column) return blocks;
  for (const CheckpointBlock& block : tensor.blocks) blocks.push_back({block.buckets, block.rows});
  return blocks;
} catch (Error& error) {
  throw error.in_file(state_->path);
}

void CheckpointReader::read(std::string_view name, MutableBytes out) const try {
  const Reader& reader = state_->index.reader();
  std::vector<Reader::Request> requests;
  for (const CheckpointBlock& block : state_->index.at(name).blocks) {
    const std::uint64_t size = reader.table().nbytes(block.tensor);
    if (size > out.size()) throw Error(ErrorCode::kInvalidArgument, "the output is too small").in_tensor(name);
    requests.push_back({block.tensor, out.first(size)});
    out = out.subspan(size);
  }
  if (!out.empty()) throw Error(ErrorCode::kInvalidArgument, "the output is too large").in_tensor(name);
  reader.read_many(requests);
} catch (Error& error) {
  throw error.in_file(state_->path);
}

void CheckpointReader::read_rows(std::string_view name, std::uint64_t begin, std::uint64_t end, MutableBytes out) const
    try {
  const Reader& reader = state_->index.reader();
  const CheckpointTensor& tensor = state_->index.at(name);
  if (tensor.shape.empty()) throw Error(ErrorCode::kInvalidArgument, "a scalar has no rows").in_tensor(name);
  const std::uint64_t rows = tensor.shape.front();
  const Shape row_shape(tensor.shape.begin() + 1, tensor.shape.end());
  const auto row_bytes = contiguous_bytes(tensor.dtype, row_shape);
  if (begin > end || end > rows) {
    throw Error(ErrorCode::kInvalidArgument,
                "rows " + std::to_string(begin) + " to " + std::to_string(end) + " of " + std::to_string(rows))
        .in_tensor(name);
  }
  if (!row_bytes) throw Error(ErrorCode::kUnsupported, "its rows do not end on whole bytes").in_tensor(name);
  if (out.size() != (end - begin) * *row_bytes) {
    throw Error(ErrorCode::kInvalidArgument, "the rows have " + std::to_string((end - begin) * *row_bytes) +
                                                 " bytes, the output " + std::to_string(out.size()))
        .in_tensor(name);
  }
  std::uint64_t first = 0;  // row of the block
  for (const CheckpointBlock& block : tensor.blocks) {
    const std::uint64_t last = first + (tensor.column ? block.rows : rows);
    const std::uint64_t from = std::max(begin, first);
    const std::uint64_t to = std::min(end, last);
    if (from < to) {
      reader.read_range(block.tensor, (from - first) * *row_bytes,
                        out.subspan((from - begin) * *row_bytes, (to - from) * *row_bytes));
    }
    first = last;
  }
} catch (Error& error) {
  throw error.in_file(state_->path);
}

std::size_t CheckpointReader::verify(const Progress& progress) const try {
  check_columns(state_->index);
  const Reader& reader = state_->index.reader();
  const std::vector<CheckpointBlock> blocks = id_blocks(state_->index);
  std::uint64_t id_bytes = 0;
  for (const CheckpointBlock& block : blocks) id_bytes += reader.table().nbytes(block.tensor);
  io::ProgressMeter meter(progress, id_bytes, "verification was cancelled");
  // Checksums first: otherwise a damaged id would be reported as an id of a wrong bucket.
  const std::size_t checksums = reader.verify_all(meter.reporting());
  io::parallel_for(
      blocks.size(), state_->threads,
      [&](std::size_t i, const io::Worker& worker) { check_block(reader, blocks[i], worker.stop, meter); },
      [&] { meter.report(); });
  meter.report_total();
  require_checksums(state_->index, checksums);
  return checksums;
} catch (Error& error) {
  throw error.in_file(state_->path);
}

}  // namespace weightstore
