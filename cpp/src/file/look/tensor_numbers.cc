#include "file/look/tensor_numbers.h"

#include "kernels/blocks/block_numbers.h"
#include "kernels/decode_as.h"
#include "kernels/numbers.h"
#include "kernels/quant_layout.h"
#include "weightstore/error.h"
#include "weightstore/kernels.h"

namespace weightstore {

TensorNumbers::TensorNumbers(const Reader& reader, std::size_t tensor, bool as_bytes)
    : reader_(&reader), tensor_(tensor) {
  const TensorInfo info = reader.table()[tensor];
  nbytes_ = info.nbytes();
  const bool is_quantized = info.quant != nullptr || can_dequantize(info.dtype);
  type_ = is_quantized ? DType::kF32 : kernels::number_type(info.dtype);
  if (as_bytes && kernels::number_kind(type_) == kernels::NumberKind::kNone) type_ = DType::kU8;
  has_numbers_ = kernels::number_kind(type_) != kernels::NumberKind::kNone;
  if (!has_numbers_) return;
  view_ = reader.view(tensor);
  if (is_quantized) {
    try {
      if (info.quant != nullptr) {
        quant_ = std::make_shared<kernels::QuantLayout>(*info.quant, info.shape, nbytes_);
      } else {
        quant_ = std::make_shared<kernels::BlockNumbers>(info.dtype, nbytes_);
      }
    } catch (Error& error) {
      throw error.in_tensor(info.name).in_file(reader.table().sources()[info.source]->name());
    }
    if (!view_) {  // a payload has its scales at its end
      const std::size_t one[] = {tensor};
      SharedMutableBytes loaded = reader.load(one).front();
      view_ = SharedBytes{loaded.bytes, loaded.owner};
      is_loaded_ = true;
    }
    size_ = quant_->size();
    return;
  }
  size_ = nbytes_ * 8 / bits_of(type_);
  // Sources that are not files inflate or gather their bytes, which they do best in order.
  const ByteSource& source = *reader.table().sources()[info.source];
  if (!view_ && source.descriptor() < 0) producer_ = reader.producer(tensor);
}

ConstBytes TensorNumbers::read(std::uint64_t first, std::size_t count, MutableBytes buffer) const {
  const std::size_t bytes = count * bits_of(type_) / 8;
  const TensorTable& table = reader_->table();
  const ByteSource& source = *table.sources()[table.source_of(tensor_)];
  if (quant_ != nullptr) {
    if (!is_loaded_) source.populate(table.begin(tensor_), nbytes_);
    const MutableBytes out = buffer.first(bytes);
    kernels::decode_as(*quant_, view_->bytes.data(), type_, first, out, false);
    return out;
  }
  const std::uint64_t offset = first * bits_of(type_) / 8;
  if (view_) {
    source.populate(table.begin(tensor_) + offset,
                    bytes);  // also finds that the file became shorter, which would kill us
    return view_->bytes.subspan(offset, bytes);
  }
  if (producer_ != nullptr) {
    producer_->fill(offset, buffer.first(bytes));
  } else {
    reader_->read_range(tensor_, offset, buffer.first(bytes));
  }
  return buffer.first(bytes);
}

}  // namespace weightstore
