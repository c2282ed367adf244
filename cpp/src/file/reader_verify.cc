// Comparing what a file says its bytes are with the bytes that are there.

#include <vector>

#include "file/reader_state.h"
#include "io/parallel.h"
#include "io/progress_meter.h"

namespace weightstore {
namespace {

using Section = Checksums::Section;

// Calls check() with the number of every section, on several threads, and `progress` on the calling one.
void verify_sections(const std::vector<Section>& sections, unsigned threads, const Progress& progress,
                     const std::function<void(std::size_t)>& check) {
  std::uint64_t total = 0;
  for (const Section& section : sections) total += section.nbytes;
  io::ProgressMeter meter(progress, total, "verification was cancelled");
  const auto check_section = [&](std::size_t k) {
    check(sections[k].number);
    meter.add(sections[k].nbytes, sections[k].name);
  };
  io::parallel_for(sections.size(), threads, check_section, [&] { meter.report(); });
  meter.report_total();
}

}  // namespace

ChecksumTable Reader::State::recorded_checksums() const {
  ChecksumTable result(table.size());
  for (const ChecksumEntry& entry : checksum_entries) result.add(entry, table);
  return result;
}

std::shared_ptr<const Checksums> Reader::State::known_checksums() const try {
  if (checksums) return checksums;
  if (own_checksums) return own_checksums();
  return std::make_shared<ChecksumTable>(recorded_checksums());
} catch (Error& error) {
  rethrow(error);
}

std::vector<std::optional<std::uint32_t>> Reader::recorded_checksums() const {
  std::vector<std::optional<std::uint32_t>> crcs;
  if (state_->checksum_entries.empty()) return crcs;
  const ChecksumTable checksums = state_->recorded_checksums();
  for (std::size_t i = 0; i < state_->table.size(); ++i) crcs.push_back(checksums.expected(i));
  return crcs;
}

void Reader::check(std::size_t tensor, ConstBytes bytes) const try {
  state_->verify(tensor, &bytes);
} catch (Error& error) {
  state_->rethrow(error, tensor);
}

bool Reader::has_checksum(std::size_t tensor) const {
  return state_->checksums && state_->checksums->covers(state_->table, tensor);
}

std::vector<std::size_t> Reader::without_checksum() const {
  const auto checksums = state_->known_checksums();
  std::vector<std::size_t> tensors;
  for (std::size_t i = 0; i < state_->table.size(); ++i) {
    if (!checksums->covers(state_->table, i)) tensors.push_back(i);
  }
  return tensors;
}

std::size_t Reader::verify_all(const Progress& progress) const {
  const auto checksums = state_->known_checksums();
  const std::vector<Section> sections = checksums->sections(state_->table);
  verify_sections(sections, state_->options.threads, progress, [&](std::size_t number) {
    try {
      checksums->check_section(state_->table, number);
    } catch (Error& error) {
      state_->rethrow(error);
    }
  });
  return sections.size();
}

}  // namespace weightstore
