// New metadata for a file whose tensors stay as they are. The header is planned anew; the tensors move as a whole, in
// as few copies as there are gaps between them.

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/little_endian.h"
#include "file/write_plan.h"
#include "formats/registry.h"
#include "io/atomic_file.h"
#include "io/checked_io.h"
#include "io/file_writer.h"
#include "weightstore/checksum.h"
#include "weightstore/convert.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

constexpr std::uint64_t kBlockBytes = 4096;        // of file systems that can share blocks
constexpr std::uint64_t kWorthSharing = 1u << 20;  // bytes
constexpr std::uint64_t kCopyBytes = 64u << 20;    // between two reports of progress

struct CopyRun {
  std::uint64_t from;
  std::uint64_t to;
  std::uint64_t length;
};

TextMap changed_metadata(const std::optional<TextMap>& before, const TextMap& changed,
                         std::span<const std::string> removed) {
  TextMap result;
  const auto is_removed = [&](std::string_view key) {
    return std::find(removed.begin(), removed.end(), key) != removed.end();
  };
  for (const std::string& key : removed) {
    if (before && before->find(key)) continue;
    throw Error(ErrorCode::kInvalidArgument, "there is no metadata entry '" + printable(key) + "' to remove");
  }
  for (std::size_t i = 0; before && i < before->size(); ++i) {
    if (!is_removed(before->key(i)) && !changed.find(before->key(i))) result.add(before->key(i), before->value(i));
  }
  for (std::size_t i = 0; i < changed.size(); ++i) result.add(changed.key(i), changed.value(i));
  result.sort();
  return result;
}

// Only blocks at the same offset in their block can be shared: spaces at the end of the header move the data there.
void align_data(const Reader& reader, Layout& layout) {
  if (reader.format() != Format::kSafetensors || layout.placements.empty()) return;
  if (layout.file_size < kWorthSharing) return;
  const Layout::Placement& first = layout.placements.front();
  const std::uint64_t shift = (reader.table().begin(first.tensor) - first.begin) % kBlockBytes;
  layout.header.append(shift, ' ');
  std::string length;  // of the text behind it
  append_little_endian(length, layout.header.size() - sizeof(std::uint64_t), sizeof(std::uint64_t));
  layout.header.replace(0, length.size(), length);
  for (Layout::Placement& placement : layout.placements) {
    placement.begin += shift;
    placement.end += shift;
  }
  layout.file_size += shift;
}

// What to copy from where; tensors that follow each other without a gap, in both files, are one run.
std::vector<CopyRun> runs_of(const TensorTable& table, const Layout& layout) {
  std::vector<CopyRun> runs;
  for (const Layout::Placement& placement : layout.placements) {
    const CopyRun next{table.begin(placement.tensor), placement.begin, placement.end - placement.begin};
    if (next.length == 0) continue;
    const bool follows = !runs.empty() && runs.back().from + runs.back().length == next.from &&
                         runs.back().to + runs.back().length == next.to;
    if (follows) {
      runs.back().length += next.length;
    } else {
      runs.push_back(next);
    }
  }
  return runs;
}

// False when the system cannot copy between these files; nothing but the header is written then.
bool copy_runs(const ByteSource& from, const io::OutputFile& to, const std::vector<CopyRun>& runs, const Layout& layout,
               const Progress& progress, io::FileOps& ops) {
  std::uint64_t done = layout.header.size();
  for (const CopyRun& run : runs) {
    for (std::uint64_t copied = 0; copied < run.length;) {
      const auto length = static_cast<std::size_t>(std::min(kCopyBytes, run.length - copied));
      const ssize_t n = io::retry_interrupted([&] {
        return ops.copy_file_range(from.descriptor(), static_cast<off_t>(run.from + copied), to.fd(),
                                   static_cast<off_t>(run.to + copied), length);
      });
      const bool is_first = &run == &runs.front() && copied == 0;
      if (n < 0 && is_first && (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP))
        return false;
      if (n < 0) throw io::io_error(errno, "cannot copy", to.target_path()).at_offset(run.to + copied);
      if (n == 0) {
        throw Error(ErrorCode::kIo, "the file became shorter while it was copied")
            .in_file(from.name())
            .at_offset(run.from + copied);
      }
      copied += static_cast<std::uint64_t>(n);
      done += static_cast<std::uint64_t>(n);
      if (progress && !progress(std::min(done, layout.file_size - 1), layout.file_size, "")) {
        throw Error(ErrorCode::kCancelled, "the change of the metadata was cancelled");
      }
    }
  }
  return true;
}

}  // namespace

void set_file_metadata(const std::filesystem::path& path, const TextMap& changed, std::span<const std::string> removed,
                       const WriteOptions& options) try {
  io::FileOps& ops = io::current_file_ops();
  ReadOptions read;
  read.map = false;
  const Reader reader = Reader::open(path, read);
  const FormatSpec& spec = spec_of(reader.format());
  if (spec.plan == nullptr || spec.is_index) {
    throw Error(ErrorCode::kInvalidArgument, std::string(spec.is_index ? "a set of shards has its metadata in its index"
                                                                       : "files of this format are only read") +
                                                 "; convert the file first");
  }
  const auto concerns_checksums = [](std::string_view key) { return key == kChecksumKey; };
  if (changed.find(kChecksumKey) || std::any_of(removed.begin(), removed.end(), concerns_checksums)) {
    throw Error(ErrorCode::kInvalidArgument,
                "the entry '" + std::string(kChecksumKey) + "' holds the checksums, and is not changed by hand");
  }
  Conversion conversion = plan_conversion(reader, reader.format());
  conversion.contents.set_metadata(changed_metadata(conversion.contents.metadata(), changed, removed));
  WriteOptions adjusted = options;
  adjusted.order = TensorOrder::kAsAdded;
  adjusted.checksums = false;
  adjusted.burn = conversion.burn;
  Layout layout = plan_file(conversion.contents, reader.format(), adjusted);
  const ByteSource& source = *reader.table().sources()[0];
  const bool one_file = source.descriptor() >= 0 && reader.table().sources().size() == 1;
  if (one_file) align_data(reader, layout);
  io::AtomicFile file(path, {options.durable, true}, ops);
  bool copied = false;
  if (one_file) {
    const std::vector<CopyRun> runs = runs_of(reader.table(), layout);
    copied = copy_runs(source, file, runs, layout, options.progress, ops);
  }
  if (copied) {
    const auto size = static_cast<off_t>(layout.file_size);
    if (io::retry_interrupted([&] { return ops.ftruncate(file.fd(), size); }) != 0) {
      throw io::io_error(errno, "cannot set the size of the file", file.target_path());
    }
    io::rewrite_header(file, layout.header, ops);
    if (options.progress) options.progress(layout.file_size, layout.file_size, "");
  } else {
    write_open_file(file, conversion.contents, layout, reader.format(), adjusted, ops);
  }
  file.commit();
} catch (Error& error) {
  error.in_file(path.string());
  throw;
}

}  // namespace weightstore
