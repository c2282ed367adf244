#include "checkpoint/save/protocol/data_files.h"

#include <vector>

#include "file/write_plan.h"
#include "io/file_source.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"
#include "weightstore/writer.h"

namespace weightstore::checkpoint {
namespace {

std::uint32_t crc_of_header(const ByteSource& source, std::uint64_t header_bytes) {
  std::vector<std::byte> header(static_cast<std::size_t>(header_bytes));
  source.read_at(0, header);
  return crc32c(header);
}

RecordedBlock describe(const PlannedBlock& planned, const TensorTable& table, std::uint64_t header_bytes) {
  const TensorInfo info = table[table.at(planned.key)];
  RecordedBlock block;
  block.key = planned.key;
  block.name = planned.block->tensor_name();
  block.kind = planned.block->kind();
  block.table = planned.block->table();
  block.slot = planned.block->slot();
  block.buckets = planned.buckets;
  block.whole = planned.block->whole();
  block.chunk_begin = planned.block->begin();
  block.dtype = info.dtype;
  block.shape = info.shape;
  block.begin = info.begin - header_bytes;
  block.end = info.end - header_bytes;
  return block;
}

}  // namespace

RecordedFile write_data_file(const std::filesystem::path& path, const PlannedFile& file, const SaveOptions& options,
                             const Progress& progress, io::FileOps& ops) {
  const bool plain = options.layout == CheckpointLayout::kPlain;
  Writer writer;
  for (const PlannedBlock& block : file.blocks) {
    writer.add(
        {block.key, block.block->dtype(), block.shape, block.block->bytes(block.stripes), std::nullopt, nullptr});
  }
  // RecIS reads every entry of a header as a tensor: its layout has no metadata.
  if (plain) writer.set_metadata("format", "pt");
  WriteOptions write;
  write.durable = options.durable;
  write.overwrite = false;
  write.checksums = plain && options.checksums;
  write.order = plain ? TensorOrder::kCanonical : TensorOrder::kAsAdded;
  write.progress = progress;
  write_file(writer, path, Format::kSafetensors, write, ops);

  const auto source = io::open_file(path, false, ops);
  const TensorTable table = safetensors::read_table(source);
  RecordedFile result;
  result.name = path.filename().native();
  result.number = file.number;
  result.bytes = source->size();
  const std::uint64_t header_bytes = result.bytes - file.nbytes;
  result.header_crc = crc_of_header(*source, header_bytes);
  for (const PlannedBlock& block : file.blocks) result.blocks.push_back(describe(block, table, header_bytes));
  return result;
}

void check_data_file(const std::filesystem::path& path, const RecordedFile& file, std::uint64_t data_bytes,
                     io::FileOps& ops) {
  const auto source = io::open_file(path, false, ops);
  if (source->size() != file.bytes || data_bytes > file.bytes) {
    throw Error(ErrorCode::kCorrupt, "has " + std::to_string(source->size()) + " bytes where " +
                                         std::to_string(file.bytes) + " were written")
        .in_file(path.native());
  }
  if (crc_of_header(*source, file.bytes - data_bytes) != file.header_crc) {
    throw Error(ErrorCode::kCorrupt, "its header was changed after it was written").in_file(path.native());
  }
}

}  // namespace weightstore::checkpoint
