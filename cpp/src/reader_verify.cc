// Checksums: of tensors, as our own files carry them, and of storages, as those of torch.save() do.

#include <algorithm>
#include <atomic>
#include <string>

#include "formats/pytorch/gather_source.h"
#include "io/parallel.h"
#include "reader_state.h"
#include "weightstore/checksum.h"

namespace weightstore {
namespace {

constexpr std::uint64_t kBlock = 1u << 20;  // what is read at a time without a mapping

}  // namespace

std::uint32_t Reader::State::compute_crc(std::size_t tensor) const {
  const std::uint64_t begin = table.begin(tensor);
  const std::uint64_t size = table.nbytes(tensor);
  if (const auto view = source_of(tensor).view(begin, size)) return crc32c(view->bytes);
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(size, kBlock)));
  std::uint32_t crc = 0;
  for (std::uint64_t done = 0; done < size; done += block.size()) {
    block.resize(static_cast<std::size_t>(std::min(size - done, kBlock)));
    source_of(tensor).read_at(begin + done, block);
    crc = crc32c(block, crc);
  }
  return crc;
}

void Reader::State::verify(std::size_t tensor, const ConstBytes* bytes) const {
  if (storages) {
    const auto gathered = pytorch::gathered_from(source_of(tensor));
    storages->check_at(*table.sources()[0], gathered.value_or(table.begin(tensor)));
    return;
  }
  if (!checksums || !checksums->needs_check(tensor)) return;
  checksums->check(tensor, bytes != nullptr ? crc32c(*bytes) : compute_crc(tensor));
}

void Reader::State::require_checksums() const {
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

ChecksumTable Reader::State::make_checksums() const {
  ChecksumTable result(table.size());
  for (const ChecksumEntry& entry : checksum_entries) result.add(entry, table);
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
