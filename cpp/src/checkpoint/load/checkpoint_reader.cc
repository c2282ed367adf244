#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/arguments.h"
#include "checkpoint/check_ids.h"
#include "checkpoint/checkpoint_index.h"
#include "file/boxes/chunk_entry.h"
#include "file/table_entry.h"
#include "io/parallel.h"
#include "io/paths.h"
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
    if (!tensor.is_column()) continue;
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
    if (tensor.is_column() && name.ends_with("@id"))
      blocks.insert(blocks.end(), tensor.blocks.begin(), tensor.blocks.end());
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

// What a later release described in the metadata of a file is not known here: the file has the tensors that it names.
bool has_chunks(const Reader& reader) try {
  const auto entry = find_table_entry(reader.table().metadata());
  return entry && !find_tensor_chunks(*entry, reader.table()).empty();
} catch (const Error& error) {
  if (error.code() != ErrorCode::kUnsupported) throw;
  return false;
}

}  // namespace

Reader open_model(const std::filesystem::path& path, const ReadOptions& options) {
  checkpoint::check_path(path);
  if (!io::is_directory(path, io::current_file_ops())) {
    Reader reader = Reader::open(path, options);
    if (!has_chunks(reader)) return reader;
    // An index by its own path: tables stay in blocks, so that a conversion keeps them.
    return CheckpointIndex::of_plain(std::move(reader), path).assembled(path.native(), checkpoint::Columns::kInBlocks);
  }
  return CheckpointIndex::open(path, options, checkpoint::SeveralIndexes::kRefuse).assembled(path.native());
}

// An error that names no file of the checkpoint names the path of the checkpoint.
struct CheckpointReader::State {
  CheckpointIndex index;
  Reader reader;
  std::string path;
  unsigned threads;
};

CheckpointReader::CheckpointReader(const std::filesystem::path& path, const ReadOptions& options) {
  CheckpointIndex index = CheckpointIndex::open(path, options);
  Reader reader = index.assembled(path.native());
  state_ = std::make_unique<const State>(State{std::move(index), std::move(reader), path.native(), options.threads});
}

CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;

const Reader& CheckpointReader::reader() const { return state_->reader; }

std::map<std::string, std::vector<std::string>> CheckpointReader::tables() const {
  std::map<std::string, std::vector<std::string>> tables;
  for (const auto& [name, tensor] : state_->index.tensors()) {
    if (!tensor.is_column()) continue;
    const std::size_t at = name.rfind('@');
    tables[name.substr(0, at)].push_back(name.substr(at + 1));
  }
  return tables;
}

std::vector<std::string> CheckpointReader::tensor_names() const {
  const TensorTable& table = state_->reader.table();
  std::vector<std::string> names;
  for (const std::uint32_t tensor : table.by_name()) names.emplace_back(table.name(tensor));
  return names;
}

bool CheckpointReader::contains(std::string_view name) const { return state_->reader.table().find(name).has_value(); }

std::size_t CheckpointReader::at(std::string_view name) const try {
  return state_->reader.table().at(name);
} catch (Error& error) {
  throw error.in_file(state_->path);
}

TensorInfo CheckpointReader::info(std::string_view name) const { return state_->reader.table()[at(name)]; }

std::vector<CheckpointReader::Block> CheckpointReader::blocks(std::string_view name) const {
  at(name);
  const CheckpointTensor& tensor = *state_->index.find(name);
  std::vector<Block> blocks;
  if (!tensor.is_column()) return blocks;
  for (const CheckpointBlock& block : tensor.blocks) blocks.push_back({block.buckets, block.rows});
  return blocks;
}

void CheckpointReader::read(std::string_view name, MutableBytes out) const try {
  state_->reader.read(at(name), out);
} catch (Error& error) {
  throw error.in_file(state_->path);
}

void CheckpointReader::read_rows(std::string_view name, std::uint64_t begin, std::uint64_t end, MutableBytes out) const
    try {
  const std::size_t tensor = at(name);
  const TensorTable& table = state_->reader.table();
  const Shape shape = table.shape(tensor);
  if (shape.empty()) throw Error(ErrorCode::kInvalidArgument, "a scalar has no rows");
  const std::uint64_t rows = shape.front();
  const auto row_bytes = contiguous_bytes(table.dtype(tensor), std::span(shape).subspan(1));
  if (begin > end || end > rows) {
    throw Error(ErrorCode::kInvalidArgument,
                "rows " + std::to_string(begin) + " to " + std::to_string(end) + " of " + std::to_string(rows));
  }
  if (!row_bytes) throw Error(ErrorCode::kUnsupported, "its rows do not end on whole bytes");
  if (out.size() != (end - begin) * *row_bytes) {
    throw Error(ErrorCode::kInvalidArgument, "the rows have " + std::to_string((end - begin) * *row_bytes) +
                                                 " bytes, the output " + std::to_string(out.size()));
  }
  state_->reader.read_range(tensor, begin * *row_bytes, out);
} catch (Error& error) {
  throw error.in_tensor(name).in_file(state_->path);
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
