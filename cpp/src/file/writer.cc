#include "weightstore/writer.h"

#include <string>
#include <utility>

#include "base/layout_stream.h"
#include "base/metadata_keys.h"
#include "file/checksum_table.h"
#include "file/memory_writer.h"
#include "file/write_plan.h"
#include "formats/registry.h"
#include "io/atomic_file.h"
#include "io/file_writer.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"

namespace weightstore {

namespace {

Layout plan_contents(const Writer& contents, Format format, const WriteOptions& options) {
  const FormatSpec& spec = spec_of(format);
  if (spec.plan == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "cannot write the format '" + std::string(spec.name) + "'");
  }
  if (contents.typed_metadata() != nullptr && !spec.has_typed_metadata) {
    throw Error(ErrorCode::kInvalidArgument, std::string(spec.title) + " has metadata of text only");
  }
  return spec.plan(contents, {options.order, options.burn.value_or(kNewestStableBurn)});
}

// With the checksums that the writer computed.
Writer with_checksums(const Writer& contents, std::span<const std::uint32_t> crcs, Format format) {
  std::vector<std::string_view> names;
  names.reserve(contents.tensors().size());
  for (const NewTensor& tensor : contents.tensors()) names.push_back(tensor.name);
  Writer result = contents;
  const bool has_format = result.metadata() && result.metadata()->find(kFormatKey);
  if (spec_of(format).names_framework && !has_format) result.set_metadata(kFormatKey, kFormatPt);
  result.set_metadata(kChecksumKey, checksum_entry(names, crcs));
  return result;
}

// The layout with the checksums that the tensors brought, if any did.
Layout plan_with_known_checksums(const Writer& contents, Format format, const WriteOptions& options) {
  std::vector<std::string_view> names;
  std::vector<std::uint32_t> crcs;
  for (const NewTensor& tensor : contents.tensors()) {
    if (!tensor.crc32c) continue;
    names.push_back(tensor.name);
    crcs.push_back(*tensor.crc32c);
  }
  if (names.empty()) return plan_contents(contents, format, options);
  Writer described = contents;
  described.set_metadata(kChecksumKey, checksum_entry(names, crcs));
  return plan_contents(described, format, options);
}

// The header with the checksums that were computed, which are the ones that the tensors brought, if any did. All have
// eight digits, so that this header is as long as the one with zeros.
std::string header_with(const Writer& contents, std::span<const std::uint32_t> crcs, Format format,
                        const WriteOptions& options) {
  for (std::size_t i = 0; i < crcs.size(); ++i) {
    const NewTensor& tensor = contents.tensors()[i];
    if (tensor.crc32c && *tensor.crc32c != crcs[i])
      throw wrong_checksum(crcs[i], *tensor.crc32c).in_tensor(tensor.name);
  }
  return plan_contents(with_checksums(contents, crcs, format), format, options).header;
}

}  // namespace

void check_contents(const Writer& contents, Format format, const WriteOptions& options) {
  plan_contents(contents, format, options);
}

Layout plan_file(const Writer& contents, Format format, const WriteOptions& options) {
  if (!options.checksums) return plan_with_known_checksums(contents, format, options);
  const std::vector<std::uint32_t> zeros(contents.tensors().size(), 0);
  return plan_contents(with_checksums(contents, zeros, format), format, options);
}

void write_open_file(const io::OutputFile& file, const Writer& contents, const Layout& layout, Format format,
                     const WriteOptions& options, io::FileOps& ops) {
  const io::StreamOptions stream{options.durable, options.checksums, options.progress};
  const std::vector<std::uint32_t> crcs = io::stream_file(file, layout, contents.tensors(), stream, ops);
  if (options.checksums) io::rewrite_header(file, header_with(contents, crcs, format, options), ops);
}

void Writer::write_file(const std::filesystem::path& path, const WriteOptions& options) const {
  write_file(path, format_of_name(path.filename().string()), options);
}

void write_file(const Writer& contents, const std::filesystem::path& path, Format format, const WriteOptions& options,
                io::FileOps& ops) try {
  // Nothing is touched when the contents cannot be a valid file, or one that Reader::open() takes under this name.
  check_name(path.native(), format);
  const Layout layout = plan_file(contents, format, options);
  io::AtomicFile file(path, {options.durable, options.overwrite}, ops);
  write_open_file(file, contents, layout, format, options, ops);
  file.commit();
} catch (Error& error) {
  error.in_file(path.string()).of_format(format);
  throw;
}

void Writer::write_file(const std::filesystem::path& path, Format format, const WriteOptions& options) const {
  weightstore::write_file(*this, path, format, options, io::current_file_ops());
}

void Writer::write_memory(Format format, const std::function<MutableBytes(std::uint64_t)>& allocate,
                          const WriteOptions& options) const {
  const Layout layout = plan_file(*this, format, options);
  check_layout(layout, tensors());
  const MutableBytes out = allocate(layout.file_size);
  const auto crcs = weightstore::write_memory(layout, tensors(), options.checksums, options.progress, out);
  if (options.checksums) {
    const std::string header = header_with(*this, crcs, format, options);
    std::copy_n(reinterpret_cast<const std::byte*>(header.data()), header.size(), out.begin());
  }
}

std::vector<std::byte> Writer::write_bytes(Format format, const WriteOptions& options) const {
  std::vector<std::byte> bytes;
  const auto allocate = [&](std::uint64_t size) -> MutableBytes {
    bytes.resize(size);
    return bytes;
  };
  write_memory(format, allocate, options);
  return bytes;
}

}  // namespace weightstore
