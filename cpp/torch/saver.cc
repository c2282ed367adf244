#include "saver.h"

#include <memory>
#include <optional>
#include <utility>

#include "last_error.h"
#include "part_place.h"
#include "tensor_bridge.h"

namespace weightstore::torch_bridge {

std::vector<std::int64_t> BlockHolder::shape() const {
  return guarded(
      [&] { return sizes_of({block_.tensor_name(), block_.dtype(), block_.shape(), 0, 0, 0, std::nullopt, nullptr}); });
}

SaverHolder::SaverHolder(std::int64_t shard_index, std::int64_t shard_num, std::int64_t parallel,
                         const std::string& path)
    : saver_(guarded([&] { return weightstore::Saver(shard_index, shard_num, parallel, path); })) {}

void SaverHolder::configure(const std::string& options) {
  guarded([&] { saver_.configure(save_options_from_json(options, saver_.options())); });
}

BlockList SaverHolder::make_write_blocks(const TableDict& tables, const TensorDict& tensors) const {
  return guarded([&] {
    std::vector<NewTensor> core_tensors;
    if (saver_.shard_index() == 0) {
      for (const auto& entry : tensors) core_tensors.push_back(new_tensor(entry.key(), entry.value()));
    }
    BlockList blocks;
    for (WriteBlock& block : saver_.make_write_blocks(core_tables(tables), std::move(core_tensors))) {
      blocks.push_back(c10::make_intrusive<BlockHolder>(std::move(block)));
    }
    return blocks;
  });
}

BlockList SaverHolder::make_part_blocks(const TensorDict& parts, const ShapeDict& wholes,
                                        const ShapeDict& begins) const {
  return guarded([&] {
    BlockList blocks;
    for (const auto& entry : parts) {
      NewTensor part = new_tensor(entry.key(), entry.value());  // first: it knows what is wrong with a tensor
      PartPlace place = part_place(entry.key(), entry.value(), wholes, begins);
      blocks.push_back(c10::make_intrusive<BlockHolder>(
          WriteBlock::chunk(std::move(part), std::move(place.whole), std::move(place.begin))));
    }
    return blocks;
  });
}

void SaverHolder::check_tensors(const TensorDict& tensors) const {
  guarded([&] {
    for (const auto& entry : tensors) checked_for_safetensors(entry.key(), entry.value());
  });
}

void SaverHolder::begin() {
  guarded([&] { pending_ = saver_.begin(); });
}

void SaverHolder::skip() {
  guarded([&] { saver_.skip(); });
}

void SaverHolder::save(const BlockList& blocks) {
  guarded([&] {
    auto pending = std::exchange(pending_, nullptr);
    std::vector<WriteBlock> core_blocks;
    for (const auto& block : blocks) core_blocks.push_back(block->block());
    weightstore::Saver saver = saver_;
    SaveOptions options = saver_.options();
    options.progress = progress_.begin();
    saver.configure(std::move(options));
    saver.save(core_blocks, std::move(pending));
  });
}

}  // namespace weightstore::torch_bridge
