// A tensor on its way from one file to another. Its checksum is computed from the chunks as they pass, so that a copy
// reads the file once; a copy of damaged bytes fails at the tensor's end, before the new file gets its name.

#include <utility>

#include "file/reader_state.h"
#include "weightstore/byte_producer.h"

namespace weightstore {

// For a reader that has checksums.
class Reader::VerifiedBytes final : public ByteProducer {
 public:
  VerifiedBytes(std::shared_ptr<const State> state, std::size_t tensor, std::shared_ptr<ByteProducer> bytes)
      : state_(std::move(state)), tensor_(tensor), bytes_(std::move(bytes)) {}

  std::uint64_t size() const override { return bytes_->size(); }

  // Nobody takes the memory as it is before it was compared.
  std::optional<ConstBytes> resident() const override { return needs_check() ? std::nullopt : bytes_->resident(); }

  void fill(std::uint64_t offset, MutableBytes out) override {
    bytes_->fill(offset, out);
    if (!needs_check()) return;
    try {
      check(offset, out);
    } catch (Error& error) {
      state_->rethrow(error, tensor_);
    }
  }

  void finished() override { bytes_->finished(); }

 private:
  bool needs_check() const { return state_->checksums->needs_check(state_->table, tensor_); }

  void check(std::uint64_t offset, ConstBytes chunk) {
    const Checksums& checksums = *state_->checksums;
    if (offset == 0) {
      next_ = 0;
      crc_ = 0;
    }
    if (offset != next_ || !checksums.is_whole_section(state_->table, tensor_)) return state_->verify(tensor_);
    crc_ = checksums.extend(chunk, crc_);
    next_ += chunk.size();
    if (next_ == size()) checksums.compare(state_->table, tensor_, crc_);
  }

  const std::shared_ptr<const State> state_;
  const std::size_t tensor_;
  const std::shared_ptr<ByteProducer> bytes_;
  std::uint64_t next_ = 0;  // where the chunk that the checksum still lacks begins
  std::uint32_t crc_ = 0;
};

std::shared_ptr<ByteProducer> Reader::producer(std::size_t tensor) const {
  const TensorTable& table = state_->table;
  auto bytes = source_bytes(table.sources()[table.source_of(tensor)], table.begin(tensor), table.nbytes(tensor));
  if (!state_->checksums || !state_->checksums->needs_check(table, tensor)) return bytes;
  if (table.nbytes(tensor) != 0) return std::make_shared<VerifiedBytes>(state_, tensor, std::move(bytes));
  check(tensor, {});  // without bytes there is no fill() to do it
  return bytes;
}

}  // namespace weightstore
