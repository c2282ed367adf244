#include "weightstore/writer.h"

#include <string>
#include <utility>

#include "checksum_table.h"
#include "io/atomic_file.h"
#include "io/file_writer.h"
#include "weightstore/burnpack.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"
#include "write_plan.h"

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

Writer with_checksums(const Writer& contents, std::span<const std::uint32_t> crcs) {
  std::vector<std::string_view> names;
  names.reserve(contents.tensors().size());
  for (const NewTensor& tensor : contents.tensors()) names.push_back(tensor.name);
  Writer result = contents;
  result.set_metadata(kChecksumKey, checksum_entry(names, crcs));
  return result;
}

void write_open_file(const io::OutputFile& file, const Writer& contents, Format format, const WriteOptions& options,
                     io::FileOps& ops) {
  const io::StreamOptions stream{options.durable, options.checksums, options.progress};
  if (!options.checksums) {
    io::stream_file(file, plan_file(contents, format, options), contents.tensors(), stream, ops);
    return;
  }
  // Checksums stand in the header but are known only behind the data. They all have eight digits, so a header of zeros
  // has the right length and is replaced at the end.
  const std::vector<std::uint32_t> zeros(contents.tensors().size(), 0);
  const Layout layout = plan_file(with_checksums(contents, zeros), format, options);
  const std::vector<std::uint32_t> crcs = io::stream_file(file, layout, contents.tensors(), stream, ops);
  io::rewrite_header(file, plan_file(with_checksums(contents, crcs), format, options).header, ops);
}

void Writer::add(NewTensor tensor) {
  if (tensor.bytes == nullptr) throw Error(ErrorCode::kInvalidArgument, "has no bytes to write").in_tensor(tensor.name);
  tensors_.push_back(std::move(tensor));
}

void Writer::add(std::string name, DType dtype, Shape shape, ConstBytes bytes) {
  add({std::move(name), dtype, std::move(shape), resident_bytes(bytes), std::nullopt, nullptr});
}

void Writer::set_metadata(std::string_view key, std::string_view value) {
  TextMap updated;
  bool replaced = false;
  if (metadata_) {
    for (std::size_t i = 0; i < metadata_->size(); ++i) {
      const bool same = metadata_->key(i) == key;
      replaced |= same;
      updated.add(metadata_->key(i), same ? value : metadata_->value(i));
    }
  }
  if (!replaced) updated.add(key, value);
  metadata_ = std::move(updated);
}

void Writer::set_metadata(const TextMap& metadata) { metadata_ = metadata; }

void Writer::set_scalar(std::string_view name, Scalar value) {
  ScalarMap updated;
  for (std::size_t i = 0; i < scalars_.size(); ++i) {
    if (scalars_.name(i) != name) updated.add(scalars_.name(i), scalars_.value(i));
  }
  updated.add(name, value);
  updated.sort();
  scalars_ = std::move(updated);
}

void Writer::set_scalars(ScalarMap scalars) {
  scalars_ = std::move(scalars);
  scalars_.sort();
}

void Writer::write_file(const std::filesystem::path& path, const WriteOptions& options) const {
  write_file(path, format_of_name(path.filename().string()), options);
}

void Writer::write_file(const std::filesystem::path& path, Format format, const WriteOptions& options) const try {
  // Nothing is touched when the contents cannot be a valid file.
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
  if (!options.checksums) return io::stream_memory(plan_file(*this, format, options), tensors_, stream, nullptr);
  std::vector<std::uint32_t> crcs(tensors_.size(), 0);
  const Layout layout = plan_file(with_checksums(*this, crcs), format, options);
  std::vector<std::byte> bytes = io::stream_memory(layout, tensors_, stream, &crcs);
  const std::string header = plan_file(with_checksums(*this, crcs), format, options).header;
  std::copy_n(reinterpret_cast<const std::byte*>(header.data()), header.size(), bytes.begin());
  return bytes;
}

}  // namespace weightstore
