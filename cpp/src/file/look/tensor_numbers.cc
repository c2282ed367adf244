#include "file/look/tensor_numbers.h"

#include "kernels/blocks/block_numbers.h"
#include "kernels/decode_as.h"
#include "kernels/numbers.h"
#include "kernels/quant_layout.h"
#include "weightstore/error.h"

namespace weightstore {

namespace {

// Null for a tensor whose elements are numbers on their own, or have none that the library can tell.
std::shared_ptr<const kernels::NumberDecoder> decoder_of(const TensorInfo& info) {
  if (info.quant != nullptr) return std::make_shared<kernels::QuantLayout>(*info.quant, info.shape, info.nbytes());
  if (!block_of(info.dtype)) return nullptr;
  try {
    return std::make_shared<kernels::BlockNumbers>(info.dtype, info.nbytes());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported) return nullptr;
    throw;
  }
}

}  // namespace

TensorNumbers::TensorNumbers(const Reader& reader, std::size_t tensor, bool as_bytes)
    : reader_(&reader), tensor_(tensor) {
  const TensorInfo info = reader.table()[tensor];
  nbytes_ = info.nbytes();
  type_ = kernels::number_type(info.dtype);
  try {
    decoder_ = decoder_of(info);
  } catch (Error& error) {
    throw error.in_tensor(info.name).in_file(reader.table().sources()[info.source]->name());
  }
  if (decoder_ != nullptr) {
    type_ = DType::kF32;
  } else if (as_bytes && kernels::number_kind(type_) == kernels::NumberKind::kNone) {
    type_ = DType::kU8;
    is_bytes_ = true;
  }
  has_numbers_ = kernels::number_kind(type_) != kernels::NumberKind::kNone;
  if (!has_numbers_) return;
  view_ = reader.view(tensor);
  if (decoder_ != nullptr) {
    if (!view_) {  // a payload of Burn has its scales at its end
      const std::size_t one[] = {tensor};
      SharedMutableBytes loaded = reader.load(one).front();
      view_ = SharedBytes{loaded.bytes, loaded.owner};
      is_loaded_ = true;
    }
    size_ = decoder_->size();
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
  if (decoder_ != nullptr) {
    if (!is_loaded_) source.populate(table.begin(tensor_), nbytes_);
    const MutableBytes out = buffer.first(bytes);
    kernels::decode_as(*decoder_, view_->bytes.data(), type_, first, out, false);
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
