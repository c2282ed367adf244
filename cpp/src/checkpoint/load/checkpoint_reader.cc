#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/checkpoint_index.h"
#include "checkpoint/slice_ids.h"
#include "io/parallel.h"
#include "weightstore/error.h"
#include "weightstore/loader.h"

namespace weightstore {

using checkpoint::CheckpointIndex;
using checkpoint::CheckpointPart;
using checkpoint::CheckpointTensor;

namespace {

constexpr std::uint64_t kIdsAtOnce = 1u << 17;

// Every column of a table has the parts that its ids have.
void check_columns(const CheckpointIndex& index) {
  for (const auto& [name, tensor] : index.tensors()) {
    if (!tensor.column) continue;
    const std::string ids = name.substr(0, name.rfind('@')) + "@id";
    const CheckpointTensor* of_table = index.find(ids);
    if (of_table == nullptr) throw Error(ErrorCode::kCorrupt, "its table has no ids").in_tensor(name);
    const auto same = [](const CheckpointPart& a, const CheckpointPart& b) {
      return a.slice == b.slice && a.rows == b.rows;
    };
    if (!std::equal(tensor.parts.begin(), tensor.parts.end(), of_table->parts.begin(), of_table->parts.end(), same)) {
      throw Error(ErrorCode::kCorrupt, "its parts are not those of '" + printable(ids) + "'").in_tensor(name);
    }
  }
}

// Whose ids must lie in their slices.
std::vector<CheckpointPart> id_parts(const CheckpointIndex& index) {
  std::vector<CheckpointPart> parts;
  if (!index.has_true_slices()) return parts;
  for (const auto& [name, tensor] : index.tensors()) {
    if (tensor.column && name.ends_with("@id")) parts.insert(parts.end(), tensor.parts.begin(), tensor.parts.end());
  }
  return parts;
}

// Reads the ids of one part and adds their bytes to `done`.
void check_part(const Reader& reader, const CheckpointPart& part, const io::StopFlag& stop,
                std::atomic<std::uint64_t>& done) try {
  std::vector<std::int64_t> ids;
  for (std::uint64_t first = 0; first < part.rows && !stop.is_set(); first += ids.size()) {
    ids.resize(static_cast<std::size_t>(std::min(kIdsAtOnce, part.rows - first)));
    reader.read_range(part.tensor, first * sizeof(std::int64_t), std::as_writable_bytes(std::span(ids)));
    checkpoint::check_ids(ids, part.slice);
    done += ids.size() * sizeof(std::int64_t);
  }
} catch (Error& error) {
  const TensorTable& table = reader.table();
  throw error.in_tensor(table.name(part.tensor)).in_file(table.sources()[table.source_of(part.tensor)]->name());
}

// Throws unless every tensor with bytes has a checksum, of which `right` were compared. The recis layout has no place
// for them.
void require_checksums(const CheckpointIndex& index, std::size_t right) {
  const Reader& reader = index.reader();
  const TensorTable& table = reader.table();
  if (!index.has_true_slices() || (reader.format() == Format::kPytorch && right != 0)) return;
  const std::vector<std::optional<std::uint32_t>> crcs = reader.recorded_checksums();
  std::size_t lacking = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.nbytes(i) == 0 || (!crcs.empty() && crcs[i])) continue;
    ++lacking;
    last = i;
  }
  if (lacking == 0) return;
  throw Error(ErrorCode::kUnsupported,
              "the tensors fit each other and " + std::to_string(right) + " checksums are right, but " +
                  std::to_string(lacking) + " of " + std::to_string(table.size()) + " tensors, such as '" +
                  printable(table.name(last)) + "', have no checksum; save or convert with checksums");
}

// Calls watch(bytes that are done) meanwhile and at the end.
template <class Watch>
void check_all_ids(const Reader& reader, const std::vector<CheckpointPart>& parts, unsigned threads,
                   const Watch& watch) {
  std::atomic<std::size_t> next = 0;
  std::atomic<std::uint64_t> done = 0;
  io::run_parallel(
      static_cast<unsigned>(std::min<std::size_t>(threads == 0 ? io::default_threads() : threads, parts.size())),
      [&](unsigned, const io::StopFlag& stop) {
        while (!stop.is_set()) {
          const std::size_t k = next.fetch_add(1);
          if (k >= parts.size()) return;
          check_part(reader, parts[k], stop, done);
        }
      },
      [&] { watch(done.load()); });
  watch(done.load());
}

}  // namespace

// Errors about the checkpoint as a whole, which name no file of it, name its path.
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

TensorInfo CheckpointReader::info(std::string_view name) const try {
  const CheckpointTensor& tensor = state_->index.at(name);
  TensorInfo info = state_->index.reader().table()[tensor.parts.front().tensor];
  info.name = name;
  info.shape = tensor.shape;
  return info;
} catch (Error& error) {
  throw error.in_file(state_->path);
}

std::vector<CheckpointReader::Part> CheckpointReader::slices(std::string_view name) const try {
  const CheckpointTensor& tensor = state_->index.at(name);
  std::vector<Part> slices;
  if (!tensor.column) return slices;
  for (const CheckpointPart& part : tensor.parts) slices.push_back({part.slice, part.rows});
  return slices;
} catch (Error& error) {
  throw error.in_file(state_->path);
}

void CheckpointReader::read(std::string_view name, MutableBytes out) const try {
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
} catch (Error& error) {
  throw error.in_file(state_->path);
}

std::size_t CheckpointReader::verify(const Progress& progress) const try {
  check_columns(state_->index);
  const Reader& reader = state_->index.reader();
  const std::vector<CheckpointPart> parts = id_parts(state_->index);
  std::uint64_t id_bytes = 0;
  for (const CheckpointPart& part : parts) id_bytes += reader.table().nbytes(part.tensor);
  std::uint64_t checksum_bytes = 0;
  const auto report = [&](std::uint64_t done, std::string_view name) {
    return !progress || progress(done, checksum_bytes + id_bytes, name);
  };
  // Checksums first: an id that was damaged may well be of another slice.
  const std::size_t checksums = reader.verify_all([&](std::uint64_t done, std::uint64_t total, std::string_view name) {
    checksum_bytes = total;
    return report(done, name);
  });
  check_all_ids(reader, parts, state_->threads, [&](std::uint64_t done) {
    if (!report(checksum_bytes + done, "ids")) throw Error(ErrorCode::kCancelled, "verification was cancelled");
  });
  require_checksums(state_->index, checksums);
  return checksums;
} catch (Error& error) {
  throw error.in_file(state_->path);
}

}  // namespace weightstore
