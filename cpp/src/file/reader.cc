#include "weightstore/reader.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/joined_source.h"
#include "file/reader_state.h"
#include "file/slice.h"
#include "io/available_memory.h"
#include "io/huge_buffer.h"
#include "io/parallel_copy.h"

namespace weightstore {
namespace {

// Tensors smaller than this share an allocation; each larger one has its own.
constexpr std::uint64_t kSlabBytes = 64u << 20;
constexpr std::uint64_t kTensorAlignment = 64;

// Threads fill the outputs in no order, so that shared memory would end up with some of each tensor.
void check_apart(std::span<const Reader::Request> requests, const TensorTable& table) {
  std::vector<const Reader::Request*> order;
  order.reserve(requests.size());
  for (const Reader::Request& request : requests) {
    if (!request.out.empty()) order.push_back(&request);
  }
  const auto address = [](const Reader::Request* request) {
    return reinterpret_cast<std::uintptr_t>(request->out.data());
  };
  std::sort(order.begin(), order.end(),
            [&](const Reader::Request* a, const Reader::Request* b) { return address(a) < address(b); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (address(order[i]) - address(order[i - 1]) >= order[i - 1]->out.size()) continue;
    throw Error(ErrorCode::kInvalidArgument, "its output shares memory with that of tensor '" +
                                                 printable(table.name(order[i - 1]->tensor)) + "'; read one of them")
        .in_tensor(table.name(order[i]->tensor));
  }
}

// Adds what `out` is filled from. The parts of a joined source are ranges of their own, so that several threads read
// them, and without the page cache where that is faster.
void add_ranges(const ByteSource& source, std::uint64_t offset, MutableBytes out, std::string_view name,
                std::vector<io::CopyRange>& ranges) {
  const auto* joined = dynamic_cast<const JoinedSource*>(&source);
  if (joined == nullptr) return ranges.push_back({&source, offset, out, name});
  joined->for_each_piece(offset, out.size(),
                         [&](const ByteSource& part, std::uint64_t at, std::uint64_t done, std::uint64_t length) {
                           ranges.push_back({&part, at, out.subspan(done, length), name});
                         });
}

}  // namespace

Format Reader::format() const { return state_->format; }

std::string Reader::file_name() const { return state_->file_name(); }

const TensorTable& Reader::table() const { return state_->table; }

std::optional<SharedBytes> Reader::view(std::size_t tensor) const try {
  auto view = state_->source_of(tensor).view(state_->table.begin(tensor), state_->table.nbytes(tensor));
  if (view) state_->verify(tensor, &view->bytes);
  return view;
} catch (Error& error) {
  state_->rethrow(error, tensor);
}

std::optional<SharedMutableBytes> Reader::private_view(std::size_t tensor) const try {
  // Checked by the file's own bytes: the private ones may have been written to.
  state_->verify(tensor);
  return state_->source_of(tensor).private_view(state_->table.begin(tensor), state_->table.nbytes(tensor));
} catch (Error& error) {
  state_->rethrow(error, tensor);
}

void Reader::read(std::size_t tensor, MutableBytes out) const {
  const Request request{tensor, out};
  read_many({&request, 1});
}

void Reader::read_range(std::size_t tensor, std::uint64_t offset, MutableBytes out) const try {
  const std::uint64_t size = state_->table.nbytes(tensor);
  if (offset > size || out.size() > size - offset) {
    throw Error(ErrorCode::kInvalidArgument, "bytes " + std::to_string(offset) + " to " +
                                                 std::to_string(offset + out.size()) + " of a tensor of " +
                                                 std::to_string(size));
  }
  state_->verify(tensor);
  state_->source_of(tensor).read_at(state_->table.begin(tensor) + offset, out);
} catch (Error& error) {
  state_->rethrow(error, tensor);
}

void Reader::read_slice(std::size_t tensor, std::span<const SliceDim> dims, MutableBytes out) const try {
  check_expansion(out.size());
  state_->verify(tensor);
  weightstore::read_slice(state_->table.dtype(tensor), state_->table.shape(tensor), dims, state_->source_of(tensor),
                          state_->table.begin(tensor), out);
} catch (Error& error) {
  state_->rethrow(error, tensor);
}

void Reader::read_many(std::span<const Request> requests, const Progress& progress) const {
  read_all(requests, {}, progress);
}

void Reader::read_all(std::span<const Request> requests, std::span<const MutableBytes> fresh,
                      const Progress& progress) const {
  std::vector<io::CopyRange> ranges;
  ranges.reserve(requests.size());
  for (const Request& request : requests) {
    const std::uint64_t size = state_->table.nbytes(request.tensor);
    if (request.out.size() != size) {
      throw Error(ErrorCode::kInvalidArgument,
                  "has " + std::to_string(size) + " bytes, the output " + std::to_string(request.out.size()))
          .in_tensor(state_->table.name(request.tensor));
    }
    add_ranges(state_->source_of(request.tensor), state_->table.begin(request.tensor), request.out,
               state_->table.name(request.tensor), ranges);
  }
  check_apart(requests, state_->table);
  try {
    io::parallel_copy(ranges, {state_->options.threads, state_->options.direct, *state_->ops, fresh}, progress);
  } catch (Error& error) {
    error.of_format(state_->format);
    throw;
  }
  for (const Request& request : requests) {
    try {
      const ConstBytes bytes = request.out;
      state_->verify(request.tensor, &bytes);
    } catch (Error& error) {
      state_->rethrow(error, request.tensor);
    }
  }
}

void Reader::check_expansion(std::uint64_t bytes) const {
  if (bytes <= state_->expansion.bytes) return;
  Error error(ErrorCode::kLimit, std::to_string(bytes) + " bytes of tensors, which a file of " +
                                     std::to_string(state_->table.sources()[0]->size()) +
                                     " repeats or compresses; at most " + std::to_string(state_->expansion.bytes) +
                                     " are copied at once. Read fewer tensors or a smaller part, or raise the limit '" +
                                     std::string(state_->expansion.field) + "'");
  state_->rethrow(error);
}

std::vector<SharedMutableBytes> Reader::load(std::span<const std::size_t> tensors, const Progress& progress) const {
  std::uint64_t total = 0;
  for (const std::size_t tensor : tensors) total += std::min(state_->table.nbytes(tensor), ~total);
  check_expansion(total);
  try {
    io::require_memory(total);
  } catch (Error& error) {
    if (tensors.size() == 1) state_->rethrow(error, tensors[0]);
    state_->rethrow(error);
  }
  // In data order, so that what is read together lies together.
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return tensors[a] < tensors[b]; });

  std::vector<SharedMutableBytes> result(tensors.size());
  std::vector<Request> requests;
  requests.reserve(tensors.size());
  std::vector<MutableBytes> slabs;
  for (std::size_t first = 0; first < order.size();) {
    // As many tensors as fit one slab; at least one.
    std::uint64_t slab_size = 0;
    std::vector<std::uint64_t> offsets;
    std::size_t last = first;
    for (; last < order.size(); ++last) {
      const std::uint64_t size = state_->table.nbytes(tensors[order[last]]);
      const std::uint64_t begin = (slab_size + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
      if (last > first && (begin >= kSlabBytes || size > kSlabBytes - begin)) break;
      offsets.push_back(begin);
      slab_size = begin + size;
    }
    const SharedMutableBytes slab = io::allocate_bulk(static_cast<std::size_t>(slab_size));
    slabs.push_back(slab.bytes);
    for (; first < last; ++first) {
      const std::size_t tensor = tensors[order[first]];
      const std::uint64_t offset = offsets[offsets.size() - (last - first)];
      const MutableBytes out = slab.bytes.subspan(offset, state_->table.nbytes(tensor));
      result[order[first]] = {out, slab.owner};
      requests.push_back({tensor, out});
    }
  }
  read_all(requests, slabs, progress);
  return result;
}

}  // namespace weightstore
