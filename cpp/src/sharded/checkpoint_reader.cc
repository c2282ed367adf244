#include <algorithm>
#include <utility>

#include "sharded/checkpoint_index.h"
#include "weightstore/error.h"
#include "weightstore/loader.h"

namespace weightstore {

using sharded::CheckpointIndex;
using sharded::CheckpointPart;
using sharded::CheckpointTensor;

struct CheckpointReader::State {
  CheckpointIndex index;
};

CheckpointReader::CheckpointReader(const std::filesystem::path& path, const ReadOptions& options)
    : state_(std::make_unique<const State>(State{CheckpointIndex::open(path, options)})) {}

CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;

std::vector<std::string> CheckpointReader::tensor_names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state_->index.tensors()) names.push_back(name);
  return names;
}

bool CheckpointReader::contains(std::string_view name) const { return state_->index.find(name) != nullptr; }

TensorInfo CheckpointReader::info(std::string_view name) const {
  const CheckpointTensor& tensor = state_->index.at(name);
  TensorInfo info = state_->index.reader().table()[tensor.parts.front().tensor];
  info.name = name;
  info.shape = tensor.shape;
  return info;
}

std::vector<CheckpointReader::Part> CheckpointReader::slices(std::string_view name) const {
  const CheckpointTensor& tensor = state_->index.at(name);
  std::vector<Part> slices;
  if (!tensor.column) return slices;
  for (const CheckpointPart& part : tensor.parts) slices.push_back({part.slice, part.rows});
  return slices;
}

void CheckpointReader::read(std::string_view name, MutableBytes out) const {
  const Reader& reader = state_->index.reader();
  std::vector<Reader::Request> requests;
  for (const CheckpointPart& part : state_->index.at(name).parts) {
    const std::uint64_t size = reader.table().nbytes(part.tensor);
    if (size > out.size()) throw Error(ErrorCode::kInvalidArgument, "the output is too small").in_tensor(name);
    requests.push_back({part.tensor, out.first(size)});
    out = out.subspan(size);
  }
  if (!out.empty()) throw Error(ErrorCode::kInvalidArgument, "the output is too large").in_tensor(name);
  reader.read_many(requests);
}

void CheckpointReader::read_rows(std::string_view name, std::uint64_t begin, std::uint64_t end,
                                 MutableBytes out) const {
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
  std::uint64_t first = 0;  // row of the part
  for (const CheckpointPart& part : tensor.parts) {
    const std::uint64_t last = first + (tensor.column ? part.rows : rows);
    const std::uint64_t from = std::max(begin, first);
    const std::uint64_t to = std::min(end, last);
    if (from < to) {
      reader.read_range(part.tensor, (from - first) * *row_bytes,
                        out.subspan((from - begin) * *row_bytes, (to - from) * *row_bytes));
    }
    first = last;
  }
}

std::size_t CheckpointReader::verify(const Progress& progress) const {
  for (const auto& [name, tensor] : state_->index.tensors()) {
    if (!tensor.column) continue;
    const std::string ids = name.substr(0, name.rfind('@')) + "@id";
    const CheckpointTensor* of_table = state_->index.find(ids);
    if (of_table == nullptr) throw Error(ErrorCode::kCorrupt, "its table has no ids").in_tensor(name);
    const auto same = [](const CheckpointPart& a, const CheckpointPart& b) {
      return a.slice == b.slice && a.rows == b.rows;
    };
    if (!std::equal(tensor.parts.begin(), tensor.parts.end(), of_table->parts.begin(), of_table->parts.end(), same)) {
      throw Error(ErrorCode::kCorrupt, "its parts are not those of '" + ids + "'").in_tensor(name);
    }
  }
  return state_->index.reader().verify_all(progress);
}

}  // namespace weightstore
