#include "weightstore/reader.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "checksum_table.h"
#include "codec/checked.h"
#include "formats/pytorch/gather_source.h"
#include "io/file_source.h"
#include "io/huge_buffer.h"
#include "io/parallel.h"
#include "io/parallel_copy.h"
#include "renamed_tensors.h"
#include "shard_set.h"
#include "slice.h"
#include "storage_checks.h"
#include "weightstore/burnpack.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"
#include "weightstore/pytorch.h"
#include "weightstore/safetensors.h"

namespace weightstore {
namespace {

// Tensors smaller than this share an allocation; each larger one has its own.
constexpr std::uint64_t kSlabBytes = 64u << 20;
constexpr std::uint64_t kTensorAlignment = 64;
// Block for computing a checksum without a mapping.
constexpr std::uint64_t kVerifyBlock = 1u << 20;

}  // namespace

struct Reader::State {
  Format format = Format::kUnknown;
  ReadOptions options;
  TensorTable table;
  std::unique_ptr<const ChecksumTable> checksums;  // null unless options.verify asks for them
  std::vector<ChecksumEntry> checksum_entries;
  std::shared_ptr<const StorageChecks> storages;  // of a .pt file, in place of the two above

  const ByteSource& source_of(std::size_t tensor) const { return *table.sources()[table.source_of(tensor)]; }

  // Adds the place to an error that happened while working on a tensor.
  [[noreturn]] void rethrow(Error& error, std::size_t tensor) const {
    throw error.in_tensor(table.name(tensor)).in_file(source_of(tensor).name()).of_format(format);
  }

  std::uint32_t compute_crc(std::size_t tensor) const {
    const std::uint64_t begin = table.begin(tensor);
    const std::uint64_t size = table.nbytes(tensor);
    if (const auto view = source_of(tensor).view(begin, size)) return crc32c(view->bytes);
    std::vector<std::byte> block(static_cast<std::size_t>(std::min(size, kVerifyBlock)));
    std::uint32_t crc = 0;
    for (std::uint64_t done = 0; done < size; done += block.size()) {
      block.resize(static_cast<std::size_t>(std::min(size - done, kVerifyBlock)));
      source_of(tensor).read_at(begin + done, block);
      crc = crc32c(block, crc);
    }
    return crc;
  }

  // Checks a tensor that was not checked yet, by `bytes` when the caller has them already.
  void verify(std::size_t tensor, const ConstBytes* bytes = nullptr) const {
    if (storages) {
      const auto gathered = pytorch::gathered_from(source_of(tensor));
      storages->check_at(*table.sources()[0], gathered.value_or(table.begin(tensor)));
      return;
    }
    if (!checksums || !checksums->needs_check(tensor)) return;
    checksums->check(tensor, bytes != nullptr ? crc32c(*bytes) : compute_crc(tensor));
  }

  // Every tensor has a checksum. One without may be a tensor whose name was damaged.
  void require_checksums() const {
    if (checksum_entries.empty()) {
      throw Error(
          ErrorCode::kUnsupported,
          "the file carries no checksums to verify; write it with checksums, or open it without full verification");
    }
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (checksums->expected(i)) continue;
      throw Error(ErrorCode::kCorrupt,
                  "the file has checksums, but none for it; its name was damaged, or it was added later")
          .in_tensor(table.name(i));
    }
  }

  // Threads fill the outputs in no order, so that shared memory would end up with some of each tensor.
  void check_apart(std::span<const Request> requests) const;

  ChecksumTable make_checksums() const {
    ChecksumTable result(table.size());
    for (const ChecksumEntry& entry : checksum_entries) result.add(entry, table);
    return result;
  }
};

Reader Reader::finish_open(std::shared_ptr<State> state) {
  if (state->format == Format::kPytorch) {
    if (state->options.verify == Verify::kOff) return Reader(std::move(state));
    state->storages = std::make_unique<const StorageChecks>(*state->table.sources()[0], state->options.limits);
    const bool all = state->options.verify == Verify::kFull;
    if (all) state->storages->require_all();
    Reader reader(std::move(state));
    if (all) reader.verify_all();
    return reader;
  }
  if (const auto entry = state->table.metadata().find(kChecksumKey)) {
    state->checksum_entries.push_back({std::string(*entry), std::nullopt});
  }
  if (state->options.verify != Verify::kOff) {
    state->checksums = std::make_unique<const ChecksumTable>(state->make_checksums());
  }
  const bool full = state->options.verify == Verify::kFull;
  if (full) state->require_checksums();
  Reader reader(std::move(state));
  if (full) reader.verify_all();
  return reader;
}

Reader Reader::open(const std::filesystem::path& path, const ReadOptions& options) try {
  auto source = io::open_file(path, options.map, io::system_file_ops());
  if (detect_format(*source) != Format::kSafetensorsIndex) return open(std::move(source), options);
  auto state = std::make_shared<State>();
  state->options = options;
  state->format = Format::kSafetensorsIndex;
  ShardSet set = open_shards(path, *source, options);
  state->table = std::move(set.table);
  state->checksum_entries = std::move(set.checksum_entries);
  return finish_open(std::move(state));
} catch (Error& error) {
  error.in_file(path.string());
  throw;
}

Reader Reader::open_set(std::span<const std::filesystem::path> paths, const ReadOptions& options) {
  auto state = std::make_shared<State>();
  state->options = options;
  state->format = Format::kSafetensors;
  ShardSet set = weightstore::open_set(paths, options);
  state->table = std::move(set.table);
  state->checksum_entries = std::move(set.checksum_entries);
  return finish_open(std::move(state));
}

Reader Reader::open(std::shared_ptr<const ByteSource> source, const ReadOptions& options) {
  const std::string name = source->name();
  try {
    auto state = std::make_shared<State>();
    state->options = options;
    state->format = detect_format(*source);
    switch (state->format) {
      case Format::kBurnpack:
        state->table = burnpack::read_table(std::move(source), options.limits);
        break;
      case Format::kSafetensors:
        state->table = safetensors::read_table(std::move(source), options.limits);
        break;
      case Format::kPytorch:
        state->table = pytorch::read_table(std::move(source), options.limits, {options.opaque});
        break;
      case Format::kSafetensorsIndex:
        throw Error(ErrorCode::kUnsupported, "a shard index names files beside it; open it by its path");
      case Format::kUnknown:
        break;
    }
    return finish_open(std::move(state));
  } catch (Error& error) {
    error.in_file(name);
    throw;
  }
}

Reader Reader::from_static(ConstBytes bytes, const ReadOptions& options) {
  return open(memory_source(bytes, nullptr, "<static>"), options);
}

Reader Reader::renamed(const NameHooks& hooks) const {
  const TensorTable& table = state_->table;
  const RenamedTensors renamed = rename_tensors(table, hooks);
  auto state = std::make_shared<State>();
  state->format = state_->format;
  state->options = state_->options;
  state->storages = state_->storages;

  TextMap metadata = table.metadata();
  if (!state_->checksum_entries.empty()) {
    const std::string entry = renamed.checksums(state_->make_checksums());
    metadata = with_checksum_entry(metadata, entry);
    state->checksum_entries.push_back({entry, std::nullopt});
  }
  state->table = renamed.table(std::move(metadata));
  if (state_->checksums) {
    auto checksums = std::make_unique<ChecksumTable>(state->make_checksums());
    for (std::size_t i = 0; i < state->table.size(); ++i) {
      // What was found right stays so.
      const std::size_t before = renamed.numbers[i];
      if (checksums->expected(i) && !state_->checksums->needs_check(before))
        checksums->check(i, *checksums->expected(i));
    }
    state->checksums = std::move(checksums);
  }
  return Reader(std::move(state));
}

Format Reader::format() const { return state_->format; }

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
  state_->verify(tensor);
  const ByteSource& source = state_->source_of(tensor);
  const std::uint64_t begin = state_->table.begin(tensor);
  weightstore::read_slice(state_->table.dtype(tensor), state_->table.shape(tensor), dims, out,
                          [&](std::uint64_t offset, MutableBytes part) { source.read_at(begin + offset, part); });
} catch (Error& error) {
  state_->rethrow(error, tensor);
}

void Reader::State::check_apart(std::span<const Request> requests) const {
  std::vector<const Request*> order;
  order.reserve(requests.size());
  for (const Request& request : requests) {
    if (!request.out.empty()) order.push_back(&request);
  }
  const auto address = [](const Request* request) { return reinterpret_cast<std::uintptr_t>(request->out.data()); };
  std::sort(order.begin(), order.end(), [&](const Request* a, const Request* b) { return address(a) < address(b); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (address(order[i]) - address(order[i - 1]) >= order[i - 1]->out.size()) continue;
    throw Error(ErrorCode::kInvalidArgument, "its output shares memory with that of tensor '" +
                                                 printable(table.name(order[i - 1]->tensor)) + "'; read one of them")
        .in_tensor(table.name(order[i]->tensor));
  }
}

void Reader::read_many(std::span<const Request> requests, const Progress& progress) const {
  read_all(requests, false, progress);
}

void Reader::read_all(std::span<const Request> requests, bool fresh, const Progress& progress) const {
  std::vector<io::CopyJob> jobs;
  jobs.reserve(requests.size());
  for (const Request& request : requests) {
    const std::uint64_t size = state_->table.nbytes(request.tensor);
    if (request.out.size() != size) {
      throw Error(ErrorCode::kInvalidArgument,
                  "has " + std::to_string(size) + " bytes, the output " + std::to_string(request.out.size()))
          .in_tensor(state_->table.name(request.tensor));
    }
    jobs.push_back({&state_->source_of(request.tensor), state_->table.begin(request.tensor), request.out,
                    state_->table.name(request.tensor)});
  }
  state_->check_apart(requests);
  try {
    io::parallel_copy(jobs, {.threads = state_->options.threads, .direct = state_->options.direct, .fresh = fresh},
                      progress);
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
  if (state_->format != Format::kPytorch) return;
  const std::uint64_t file = state_->table.sources()[0]->size();
  const std::uint64_t most =
      std::max(state_->options.limits.pytorch_expanded_bytes, checked_mul(file, 16).value_or(file));
  if (bytes <= most) return;
  throw Error(ErrorCode::kLimit, "the tensors have " + std::to_string(bytes) +
                                     " bytes, which repeat those of a file of " + std::to_string(file) +
                                     "; read fewer of them, or a part")
      .in_file(state_->table.sources()[0]->name())
      .of_format(state_->format);
}

std::vector<SharedMutableBytes> Reader::load(std::span<const std::size_t> tensors, const Progress& progress) const {
  std::uint64_t total = 0;
  for (const std::size_t tensor : tensors) total += std::min(state_->table.nbytes(tensor), ~total);
  check_expansion(total);
  // In data order, so that what is read together lies together.
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return tensors[a] < tensors[b]; });

  std::vector<SharedMutableBytes> result(tensors.size());
  std::vector<Request> requests;
  requests.reserve(tensors.size());
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
    for (; first < last; ++first) {
      const std::size_t tensor = tensors[order[first]];
      const std::uint64_t offset = offsets[offsets.size() - (last - first)];
      const MutableBytes out = slab.bytes.subspan(offset, state_->table.nbytes(tensor));
      result[order[first]] = {out, slab.owner};
      requests.push_back({tensor, out});
    }
  }
  read_all(requests, true, progress);
  return result;
}

void Reader::check(std::size_t tensor, ConstBytes bytes) const try {
  state_->verify(tensor, &bytes);
} catch (Error& error) {
  state_->rethrow(error, tensor);
}

std::size_t Reader::verify_storages(const Progress& progress) const {
  const ByteSource& file = *state_->table.sources()[0];
  const StorageChecks fresh(file, state_->options.limits);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < fresh.size(); ++i) total += fresh[i].end - fresh[i].begin;
  std::uint64_t done = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    try {
      fresh.check(file, i);
      if (state_->storages) state_->storages->check(file, i);
    } catch (Error& error) {
      throw error.in_file(file.name()).of_format(state_->format);
    }
    if (fresh[i].crc && fresh[i].end > fresh[i].begin) ++count;
    done += fresh[i].end - fresh[i].begin;
    if (progress && !progress(done, total, fresh[i].name)) {
      throw Error(ErrorCode::kCancelled, "verification was cancelled");
    }
  }
  return count;
}

std::size_t Reader::verify_all(const Progress& progress) const {
  if (state_->format == Format::kPytorch) return verify_storages(progress);
  const ChecksumTable fresh = state_->make_checksums();
  std::vector<std::size_t> tensors;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < state_->table.size(); ++i) {
    if (!fresh.expected(i)) continue;
    tensors.push_back(i);
    total += state_->table.nbytes(i);
  }
  std::atomic<std::size_t> next = 0;
  std::atomic<std::uint64_t> done = 0;
  const auto report = [&] {
    if (!progress) return;
    const std::size_t current = std::min(next.load(), tensors.size());
    const std::string_view name = current == 0 ? std::string_view() : state_->table.name(tensors[current - 1]);
    if (!progress(done.load(), total, name)) throw Error(ErrorCode::kCancelled, "verification was cancelled");
  };
  const unsigned threads = state_->options.threads == 0 ? io::default_threads() : state_->options.threads;
  io::run_parallel(
      threads,
      [&](unsigned, const io::StopFlag& stop) {
        while (!stop.is_set()) {
          const std::size_t k = next.fetch_add(1);
          if (k >= tensors.size()) return;
          try {
            fresh.check(tensors[k], state_->compute_crc(tensors[k]));
            if (state_->checksums) state_->checksums->check(tensors[k], *fresh.expected(tensors[k]));
          } catch (Error& error) {
            state_->rethrow(error, tensors[k]);
          }
          done += state_->table.nbytes(tensors[k]);
        }
      },
      report);
  report();
  return tensors.size();
}

}  // namespace weightstore
