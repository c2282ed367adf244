#include <utility>

#include "file/boxes/box.h"
#include "file/bucket_range_text.h"
#include "table/names.h"
#include "weightstore/error.h"
#include "weightstore/saver.h"

namespace weightstore {

std::string_view to_string(BlockKind kind) {
  switch (kind) {
    case BlockKind::kDense:
      return "dense";
    case BlockKind::kChunk:
      return "chunk";
    case BlockKind::kIds:
      return "ids";
    case BlockKind::kSlot:
      return "slot";
  }
  return "";
}

WriteBlock WriteBlock::dense(NewTensor tensor) {
  if (tensor.bytes == nullptr) throw Error(ErrorCode::kInvalidArgument, "has no bytes to write").in_tensor(tensor.name);
  WriteBlock block;
  block.name_ = std::move(tensor.name);
  block.dtype_ = tensor.dtype;
  block.shape_ = std::move(tensor.shape);
  block.nbytes_ = tensor.bytes->size();
  block.dense_ = std::move(tensor.bytes);
  return block;
}

WriteBlock WriteBlock::chunk(NewTensor part, Shape whole, Shape begin) {
  try {
    BoxRuns(box_of(part.dtype, whole, begin, part.shape));
  } catch (Error& error) {
    throw error.in_tensor(part.name);
  }
  WriteBlock block = dense(std::move(part));
  if (block.shape_ == whole) return block;
  block.kind_ = BlockKind::kChunk;
  block.whole_ = std::move(whole);
  block.begin_ = std::move(begin);
  return block;
}

std::vector<WriteBlock> WriteBlock::of_table(const std::shared_ptr<const TableSnapshot>& snapshot) {
  std::vector<WriteBlock> blocks;
  for (std::size_t child = 0; child < snapshot->children().size(); ++child) {
    const std::string& table = snapshot->children()[child];
    table::check_table_name("a table", table);
    const std::uint64_t rows = snapshot->rows(child, snapshot->all_stripes());
    WriteBlock ids;
    ids.kind_ = BlockKind::kIds;
    ids.name_ = table + "@id";
    ids.table_ = table;
    ids.slot_ = "id";
    ids.dtype_ = DType::kI64;
    ids.shape_ = {rows};
    ids.nbytes_ = rows * sizeof(std::int64_t);
    ids.snapshot_ = snapshot;
    ids.child_ = child;
    blocks.push_back(ids);
    for (std::size_t number = 0; number < snapshot->slots().size(); ++number) {
      const SlotInfo& slot = snapshot->slots()[number];
      table::check_slot_name(slot.name);
      WriteBlock block = ids;
      block.kind_ = BlockKind::kSlot;
      block.name_ = table + "@" + slot.name;
      block.slot_ = slot.name;
      block.dtype_ = slot.dtype;
      block.shape_.insert(block.shape_.end(), slot.shape.begin(), slot.shape.end());
      block.nbytes_ = rows * slot.row_bytes;
      block.slot_number_ = number;
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

std::string WriteBlock::slice_info() const { return is_column() ? bucket_range_text(snapshot_->buckets()) : " "; }

std::shared_ptr<ByteProducer> WriteBlock::bytes(StripeRange stripes) const {
  switch (kind_) {
    case BlockKind::kDense:
    case BlockKind::kChunk:
      return dense_;
    case BlockKind::kIds:
      return snapshot_->ids(child_, stripes);
    case BlockKind::kSlot:
      return snapshot_->slot(slot_number_, child_, stripes);
  }
  return nullptr;
}

}  // namespace weightstore
