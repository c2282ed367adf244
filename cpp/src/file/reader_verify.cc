// Checksums: of tensors, as our own files carry them, and of storages, as those of torch.save() do.

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/crc32.h"
#include "file/reader_state.h"
#include "formats/pytorch/gather_source.h"
#include "io/parallel.h"
#include "weightstore/checksum.h"

namespace weightstore {
namespace {

constexpr std::uint64_t kBlock = 1u << 20;  // what is read at a time without a mapping

// What has a checksum of its own.
struct Part {
  std::size_t number;
  std::uint64_t nbytes;
  std::string_view name;
};

// Calls check() with the number of every part, on several threads, and `progress` on the calling one.
void verify_parts(const std::vector<Part>& parts, unsigned threads, const Progress& progress,
                  const std::function<void(std::size_t)>& check) {
  std::uint64_t total = 0;
  for (const Part& part : parts) total += part.nbytes;
  std::atomic<std::size_t> next = 0;
  std::atomic<std::uint64_t> done = 0;
  const auto report = [&] {
    if (!progress) return;
    const std::size_t current = std::min(next.load(), parts.size());
    const std::string_view name = current == 0 ? std::string_view() : parts[current - 1].name;
    if (!progress(done.load(), total, name)) throw Error(ErrorCode::kCancelled, "verification was cancelled");
  };
  io::run_parallel(
      threads == 0 ? io::default_threads() : threads,
      [&](unsigned, const io::StopFlag& stop) {
        while (!stop.is_set()) {
          const std::size_t k = next.fetch_add(1);
          if (k >= parts.size()) return;
          check(parts[k].number);
          done += parts[k].nbytes;
        }
      },
      report);
  report();
}

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

std::uint64_t Reader::State::position_of(std::size_t tensor) const {
  return pytorch::gathered_from(source_of(tensor)).value_or(table.begin(tensor));
}

bool Reader::State::needs_check(std::size_t tensor) const {
  if (storages) return storages->needs_check(position_of(tensor));
  return checksums && checksums->needs_check(tensor);
}

bool Reader::State::has_own_checksum(std::size_t tensor) const {
  if (!storages) return true;
  if (pytorch::gathered_from(source_of(tensor))) return false;
  const std::uint64_t begin = table.begin(tensor);
  return storages->is_whole(begin, begin + table.nbytes(tensor));
}

std::uint32_t Reader::State::extend_crc(ConstBytes bytes, std::uint32_t crc) const {
  return storages ? crc32(bytes, crc) : crc32c(bytes, crc);
}

void Reader::State::compare_crc(std::size_t tensor, std::uint32_t crc) const {
  if (storages) {
    storages->compare_at(table.begin(tensor), crc);
  } else {
    checksums->check(tensor, crc);
  }
}

void Reader::State::verify(std::size_t tensor, const ConstBytes* bytes) const {
  if (storages) {
    storages->check_at(*table.sources()[0], position_of(tensor));
    return;
  }
  if (!checksums || !checksums->needs_check(tensor)) return;
  checksums->check(tensor, bytes != nullptr ? crc32c(*bytes) : compute_crc(tensor));
}

void Reader::State::require_checksums() const {
  if (storages) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (table.nbytes(i) > 0) storages->require(position_of(i));
    }
    return;
  }
  if (checksum_entries.empty()) {
    throw Error(
        ErrorCode::kUnsupported,
        "the file carries no checksums to verify; write it with checksums, or open it without full verification");
  }
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (checksums->expected(i)) continue;
    throw Error(ErrorCode::kCorrupt,
                "the file has checksums, but none for it; its name was damaged, or it was added later")
        .in_tensor(table.name(i))
        .in_file(source_of(i).name());
  }
}

ChecksumTable Reader::State::make_checksums() const {
  ChecksumTable result(table.size());
  for (const ChecksumEntry& entry : checksum_entries) result.add(entry, table);
  return result;
}

std::vector<std::optional<std::uint32_t>> Reader::recorded_checksums() const {
  std::vector<std::optional<std::uint32_t>> crcs;
  if (state_->checksum_entries.empty()) return crcs;
  const ChecksumTable checksums = state_->make_checksums();
  for (std::size_t i = 0; i < state_->table.size(); ++i) crcs.push_back(checksums.expected(i));
  return crcs;
}

void Reader::check(std::size_t tensor, ConstBytes bytes) const try {
  state_->verify(tensor, &bytes);
} catch (Error& error) {
  state_->rethrow(error, tensor);
}

bool Reader::has_checksum(std::size_t tensor) const {
  if (state_->storages) return state_->storages->covers(state_->position_of(tensor));
  return state_->checksums && state_->checksums->expected(tensor);
}

std::vector<std::size_t> Reader::without_checksum() const {
  std::vector<std::size_t> tensors;
  const auto add_unless = [&](const auto& is_covered) {
    for (std::size_t i = 0; i < state_->table.size(); ++i) {
      if (!is_covered(i)) tensors.push_back(i);
    }
  };
  if (state_->format == Format::kPytorch) {
    const StorageChecks storages(*state_->table.sources()[0], state_->options.limits);
    add_unless([&](std::size_t i) { return state_->table.nbytes(i) == 0 || storages.covers(state_->position_of(i)); });
  } else {
    const ChecksumTable checksums = state_->make_checksums();
    add_unless([&](std::size_t i) { return checksums.expected(i).has_value(); });
  }
  return tensors;
}

std::size_t Reader::verify_storages(const Progress& progress) const {
  const ByteSource& file = *state_->table.sources()[0];
  const StorageChecks fresh(file, state_->options.limits);
  std::vector<Part> parts;
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    const pytorch::StorageChecksum& storage = fresh[i];
    if (storage.crc && storage.end > storage.begin) parts.push_back({i, storage.end - storage.begin, storage.name});
  }
  verify_parts(parts, state_->options.threads, progress, [&](std::size_t i) {
    try {
      fresh.check(file, i);
      if (state_->storages) state_->storages->confirm(i, fresh[i]);
    } catch (Error& error) {
      throw error.in_file(file.name()).of_format(state_->format);
    }
  });
  return parts.size();
}

std::size_t Reader::verify_all(const Progress& progress) const {
  if (state_->format == Format::kPytorch) return verify_storages(progress);
  const ChecksumTable fresh = state_->make_checksums();
  std::vector<Part> parts;
  for (std::size_t i = 0; i < state_->table.size(); ++i) {
    if (fresh.expected(i)) parts.push_back({i, state_->table.nbytes(i), state_->table.name(i)});
  }
  verify_parts(parts, state_->options.threads, progress, [&](std::size_t i) {
    try {
      fresh.check(i, state_->compute_crc(i));
      if (state_->checksums) state_->checksums->check(i, *fresh.expected(i));
    } catch (Error& error) {
      state_->rethrow(error, i);
    }
  });
  return parts.size();
}

}  // namespace weightstore
