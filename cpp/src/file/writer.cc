#include "weightstore/writer.h"

#include <string>
#include <utility>

#include "base/metadata_keys.h"
#include "file/checksum_table.h"
#include "file/write_plan.h"
#include "io/atomic_file.h"
#include "io/file_writer.h"
#include "weightstore/burnpack.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"

namespace weightstore {

Layout plan_file(const Writer& contents, Format format, const WriteOptions& options) {
  switch (format) {
    case Format::kSafetensors:
      return safetensors::plan(contents, options.order);
    case Format::kBurnpack:
      return burnpack::plan(contents, options.burn_compat);
    default:
      throw Error(ErrorCode::kInvalidArgument, "cannot write the format '" + std::string(to_string(format)) + "'");
  }
}

namespace {

// With the checksums that the writer computed.
Writer with_checksums(const Writer& contents, std::span<const std::uint32_t> crcs, Format format) {
  std::vector<std::string_view> names;
  names.reserve(contents.tensors().size());
  for (const NewTensor& tensor : contents.tensors()) names.push_back(tensor.name);
  Writer result = contents;
  const bool has_format = result.metadata() && result.metadata()->find(kFormatKey);
  if (format == Format::kSafetensors && !has_format) result.set_metadata(kFormatKey, kFormatPt);
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
  if (names.empty()) return plan_file(contents, format, options);
  Writer described = contents;
  described.set_metadata(kChecksumKey, checksum_entry(names, crcs));
  return plan_file(described, format, options);
}

void check_known(const Writer& contents, std::span<const std::uint32_t> crcs) {
  for (std::size_t i = 0; i < crcs.size(); ++i) {
    const NewTensor& tensor = contents.tensors()[i];
    if (tensor.crc32c && *tensor.crc32c != crcs[i])
      throw wrong_checksum(crcs[i], *tensor.crc32c).in_tensor(tensor.name);
  }
}

}  // namespace

void write_open_file(const io::OutputFile& file, const Writer& contents, Format format, const WriteOptions& options,
                     io::FileOps& ops) {
  const io::StreamOptions stream{options.durable, options.checksums, options.progress};
  if (!options.checksums) {
    const Layout layout = plan_with_known_checksums(contents, format, options);
    io::stream_file(file, layout, contents.tensors(), stream, ops);
    return;
  }
  // Checksums stand in the header but are known only behind the data. They all have eight digits, so a header of zeros
  // has the right length and is replaced at the end.
  const std::vector<std::uint32_t> zeros(contents.tensors().size(), 0);
  const Layout layout = plan_file(with_checksums(contents, zeros, format), format, options);
  const std::vector<std::uint32_t> crcs = io::stream_file(file, layout, contents.tensors(), stream, ops);
  check_known(contents, crcs);
  io::rewrite_header(file, plan_file(with_checksums(contents, crcs, format), format, options).header, ops);
}

void Writer::write_file(const std::filesystem::path& path, const WriteOptions& options) const {
  write_file(path, format_of_name(path.filename().string()), options);
}

void Writer::write_file(const std::filesystem::path& path, Format format, const WriteOptions& options) const try {
  // Nothing is touched when the contents cannot be a valid file, or one that Reader::open() takes under this name.
  check_name(path.native(), format);
  plan_file(*this, format, options);
  io::FileOps& ops = options.file_ops != nullptr ? *options.file_ops : io::system_file_ops();
  io::AtomicFile file(path, {options.durable, options.overwrite}, ops);
  write_open_file(file, *this, format, options, ops);
  file.commit();
} catch (Error& error) {
  error.in_file(path.string()).of_format(format);
  throw;
}

std::vector<std::byte> Writer::write_bytes(Format format, const WriteOptions& options) const {
  const io::StreamOptions stream{false, options.checksums, options.progress};
  if (!options.checksums) {
    const Layout layout = plan_with_known_checksums(*this, format, options);
    return io::stream_memory(layout, tensors(), stream, nullptr);
  }
  std::vector<std::uint32_t> crcs(tensors().size(), 0);
  const Layout layout = plan_file(with_checksums(*this, crcs, format), format, options);
  std::vector<std::byte> bytes = io::stream_memory(layout, tensors(), stream, &crcs);
  check_known(*this, crcs);
  const std::string header = plan_file(with_checksums(*this, crcs, format), format, options).header;
  std::copy_n(reinterpret_cast<const std::byte*>(header.data()), header.size(), bytes.begin());
  return bytes;
}

}  // namespace weightstore
