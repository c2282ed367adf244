#pragma once

// torch.classes.store.Saver and WriteBlock.

#include <torch/custom_class.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "call_progress.h"
#include "part_place.h"
#include "table_dict.h"
#include "weightstore/saver.h"

namespace weightstore::torch_bridge {

// Immutable, as WriteBlock is.
class BlockHolder : public torch::CustomClassHolder {
 public:
  explicit BlockHolder(weightstore::WriteBlock block) : block_(std::move(block)) {}

  std::string tensor_name() const { return block_.tensor_name(); }
  std::string slice_info() const { return block_.slice_info(); }
  std::int64_t nbytes() const { return static_cast<std::int64_t>(block_.nbytes()); }
  // The name that files use: "F32", "BF16", ...
  std::string dtype() const { return std::string(name_of(block_.dtype())); }
  std::vector<std::int64_t> shape() const;
  std::string kind() const { return std::string(to_string(block_.kind())); }

  const weightstore::WriteBlock& block() const { return block_; }

 private:
  const weightstore::WriteBlock block_;
};

using BlockList = std::vector<c10::intrusive_ptr<BlockHolder>>;

// Thread-compatible, except for progress() and cancel(), which are for other threads while save() runs.
class SaverHolder : public torch::CustomClassHolder {
 public:
  SaverHolder(std::int64_t shard_index, std::int64_t shard_num, std::int64_t parallel, const std::string& path);

  // JSON, as save_options_from_json() takes it. What it does not name stays as it is.
  void configure(const std::string& options);

  // Tables are captured as they are now. Dense tensors on the CPU are not copied: they must stay as they are until they
  // are saved.
  BlockList make_write_blocks(const TableDict& tables, const TensorDict& tensors) const;
  // Blocks of tensors of which this shard saves a part, whichever shard it is: by name the part, the shape of the whole
  // tensor, and where the part begins in it, as torch counts. Parts that are whole are dense blocks.
  BlockList make_part_blocks(const TensorDict& parts, const ShapeDict& wholes, const ShapeDict& begins) const;
  // Throws what make_write_blocks() would throw about the tensors, without copying any.
  void check_tensors(const TensorDict& tensors) const;
  // As Saver::begin(). The next save() or give_up() uses the save that it returns.
  void begin();
  void save(const BlockList& blocks);

  // As Saver::give_up() and Saver::skip().
  void give_up(const std::string& why) { saver_.give_up(why, std::exchange(pending_, nullptr)); }
  void skip();

  // Bytes written, bytes in all, and what is being written, of the save that is running.
  std::tuple<std::int64_t, std::int64_t, std::string> progress() const { return progress_.get(); }
  void cancel() { progress_.cancel(); }

 private:
  weightstore::Saver saver_;
  std::shared_ptr<weightstore::PendingSave> pending_;
  CallProgress progress_;
};

}  // namespace weightstore::torch_bridge
