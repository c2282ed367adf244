#include "weightstore/loader.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "checkpoint/arguments.h"
#include "checkpoint/load/block_loader.h"
#include "checkpoint/load/dense_reads.h"
#include "checkpoint/load/load_plan.h"
#include "codec/json.h"
#include "file/boxes/box.h"
#include "io/progress_meter.h"
#include "weightstore/error.h"
#include "weightstore/hash_table.h"

namespace weightstore {
namespace {

using checkpoint::BlockLoad;
using checkpoint::DenseLoad;
using checkpoint::DenseReads;
using checkpoint::TableLoad;

// Throws unless everything that the load will read has a checksum.
void require_requested_checksums(const Reader& reader, const DenseReads& dense, std::span<const BlockLoad> blocks) {
  const TensorTable& table = reader.table();
  const auto require = [&](std::size_t tensor) {
    if (table.nbytes(tensor) == 0 || reader.has_checksum(tensor)) return;
    throw Error(ErrorCode::kUnsupported,
                "the file has no checksum for it to verify; load without verifying, or save with checksums, which the "
                "plain layout has")
        .in_tensor(table.name(tensor))
        .in_file(table.sources()[table.source_of(tensor)]->name());
  };
  for (const std::size_t tensor : dense.tensors()) require(tensor);
  for (const BlockLoad& block : blocks) {
    require(block.load->ids->blocks[block.block].tensor);
    for (const TableLoad::Slot& slot : block.load->slots) require(slot.source->blocks[block.block].tensor);
  }
}

void check_part(const LoadTarget& target) try {
  BoxRuns(box_of(target.dtype, target.part_of->whole, target.part_of->begin, target.shape));
} catch (Error& error) {
  throw error.in_tensor(target.name);
}

Verify verify_option(const Value& value) {
  if (const bool* flag = value.get_if<bool>()) return *flag ? Verify::kFull : Verify::kOff;
  const auto* word = value.get_if<std::string>();
  if (word != nullptr && *word == "off") return Verify::kOff;
  if (word != nullptr && *word == "lazy") return Verify::kLazy;
  if (word != nullptr && *word == "full") return Verify::kFull;
  throw Error(ErrorCode::kInvalidArgument,
              "the option 'verify' is \"off\", \"lazy\" or \"full\" (false is \"off\", true is \"full\")");
}

}  // namespace

LoadOptions load_options_from_json(std::string_view json, LoadOptions options) {
  const Value value = json_decode(json);
  const auto* map = value.get_if<Value::Map>();
  if (map == nullptr) throw Error(ErrorCode::kInvalidArgument, "the options of a load are a JSON object");
  for (const auto& [key, entry] : *map) {
    const std::string& name = *key.get_if<std::string>();
    const bool* flag = entry.get_if<bool>();
    if (name == "strict" && flag != nullptr) {
      options.strict = *flag;
    } else if (name == "verify") {
      options.verify = verify_option(entry);
    } else {
      throw Error(ErrorCode::kInvalidArgument,
                  "'" + printable(name) + "' is not an option of a load; there are strict (true or false) and verify");
    }
  }
  return options;
}

Loader::Loader(std::filesystem::path path, std::int64_t parallel, std::vector<std::shared_ptr<HashTable>> tables,
               std::vector<LoadTarget> tensors)
    : path_(std::move(path)),
      parallel_(checkpoint::checked_parallel(parallel)),
      tables_(std::move(tables)),
      tensors_(std::move(tensors)) {
  checkpoint::check_path(path_);
  std::set<std::string> names;
  for (const auto& table : tables_) {
    if (table == nullptr) throw Error(ErrorCode::kInvalidArgument, "a table to load into is null");
    for (const std::string& child : table->children()) {
      if (!names.insert(child).second)
        throw Error(ErrorCode::kInvalidArgument, "two tables have this name").in_tensor(child);
    }
  }
  const std::set<std::string> table_names = names;
  for (const LoadTarget& tensor : tensors_) {
    if (!names.insert(tensor.name).second) {
      const bool is_table = table_names.contains(tensor.name);
      throw Error(ErrorCode::kInvalidArgument, is_table ? "a table and a tensor both have this name; rename one of them"
                                                        : "two targets have this name")
          .in_tensor(tensor.name);
    }
    if (contiguous_bytes(tensor.dtype, tensor.shape) != tensor.bytes.size()) {
      throw Error(ErrorCode::kInvalidArgument, "its memory does not have the size of its type and shape")
          .in_tensor(tensor.name);
    }
    if (tensor.bytes.data() == nullptr && !tensor.bytes.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "has a null pointer for its memory").in_tensor(tensor.name);
    }
    if (tensor.part_of) check_part(tensor);
  }
}

std::string Loader::default_load_info() const { return checkpoint::default_info(tables_, tensors_); }

std::vector<std::string> Loader::load(std::string_view info) const try {
  ReadOptions read;
  read.threads = parallel_;
  // Only what is loaded is compared, also with kFull.
  read.verify = options_.verify == Verify::kOff ? Verify::kOff : Verify::kLazy;
  const auto index = checkpoint::CheckpointIndex::open(path_, read);
  const Reader& reader = index.reader();
  const checkpoint::LoadPlan plan = checkpoint::plan_load(index, tables_, tensors_, info, options_.strict);
  const DenseReads dense(index, plan.dense);
  const std::vector<BlockLoad> blocks = checkpoint::blocks_to_load(plan, index);
  if (options_.verify == Verify::kFull) require_requested_checksums(reader, dense, blocks);

  std::uint64_t total = dense.bytes();
  for (const BlockLoad& block : blocks) total += checkpoint::bytes_of(reader.table(), block);
  io::ProgressMeter meter(options_.progress, total, "loading was cancelled; what was loaded so far stays");
  dense.read(parallel_, meter);
  checkpoint::load_blocks(index, blocks, parallel_, meter);
  meter.report_finished();
  std::vector<std::string> loaded;
  for (const DenseLoad& load : plan.dense) loaded.push_back(load.target->name);
  return loaded;
} catch (Error& error) {
  error.in_file(path_.native());
  throw;
}

}  // namespace weightstore
