#include "pager/catalog.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/available_memory.h"
#include "pager/buffer_pool.h"

namespace weightstore::pager {
namespace {

// Up to this size, padding, rounding up and doubling cannot overflow. No file is larger, but a source may claim to be.
constexpr std::uint64_t kLargestTensor = std::uint64_t{1} << 62;

std::uint64_t total_bytes(const TensorTable& table) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (__builtin_add_overflow(sum, table.nbytes(i), &sum)) return kUnlimited;
  }
  return sum;
}

bool wants_direct_reads(DirectReads direct, const TensorTable& table) {
  if (direct != DirectReads::kAuto) return direct == DirectReads::kAlways;
  return total_bytes(table) > io::available_memory(io::Swap::kIgnored);
}

}  // namespace

Catalog::Catalog(std::optional<Reader> reader, TensorTable raw_table, const PagerOptions& options)
    : reader_(std::move(reader)), raw_table_(std::move(raw_table)) {
  const bool direct = wants_direct_reads(options.direct, table());
  for (const auto& source : table().sources()) {
    viewable_.push_back(options.zero_copy && source->size() > 0 && source->view(0, 1).has_value());
    if (!direct) continue;
    const bool file = source->descriptor() >= 0;
    direct_.push_back(file ? std::make_unique<io::DirectFile>(ops_, source->descriptor()) : nullptr);
  }
  for (std::size_t i = 0; i < table().size(); ++i) {
    if (table().nbytes(i) > kLargestTensor) {
      throw Error(ErrorCode::kLimit,
                  "has " + std::to_string(table().nbytes(i)) + " bytes, which is more than any memory can hold")
          .in_tensor(table().name(i))
          .in_file(source_of(i).name());
    }
    largest_buffer_ = std::max(largest_buffer_, plan(i).buffer_bytes());
  }
}

std::size_t Catalog::checked(std::size_t tensor) const {
  if (tensor < table().size()) return tensor;
  throw Error(ErrorCode::kNotFound, "there is no slot " + std::to_string(tensor) + "; the pager has " +
                                        std::to_string(table().size()) + " tensors");
}

LoadPlan Catalog::plan(std::size_t tensor) const {
  const std::uint32_t source = table().source_of(tensor);
  io::DirectFile* direct = direct_.empty() ? nullptr : direct_[source].get();
  return LoadPlan::make(*table().sources()[source], direct, table().begin(tensor), table().nbytes(tensor));
}

std::uint64_t Catalog::charge(std::size_t tensor) const {
  if (table().nbytes(tensor) < BufferPool::kPooled / 2) return table().nbytes(tensor);  // its buffer has no slack
  return is_view(tensor) ? table().nbytes(tensor) : BufferPool::capacity_for(plan(tensor).buffer_bytes());
}

bool Catalog::copy_from_mapping(std::size_t tensor, MutableBytes out) const {
  const std::uint64_t size = table().nbytes(tensor);
  if (reader_ || size == 0 || size >= BufferPool::kPooled || source_of(tensor).descriptor() < 0) return false;
  const auto mapped = source_of(tensor).view(table().begin(tensor), size);
  if (!mapped) return false;
  std::memcpy(out.data(), mapped->bytes.data(), size);
  return true;
}

void Catalog::show(std::size_t tensor, Frame& frame) const {
  const auto& source = table().sources()[table().source_of(tensor)];
  const std::uint64_t offset = table().begin(tensor);
  const std::uint64_t size = table().nbytes(tensor);
  source->populate(offset, size);
  SharedBytes view = source->view(offset, size).value();
  frame.bytes = view.bytes;
  frame.view_owner = std::shared_ptr<const void>(
      view.bytes.data(),
      [source, owner = std::move(view.owner), offset, size](const void*) { source->discard(offset, size); });
}

std::optional<std::uint64_t> Catalog::bytes_left(std::size_t tensor) const {
  const int fd = source_of(tensor).descriptor();
  struct stat status;
  if (fd < 0 || ops_.fstat(fd, &status) != 0) return std::nullopt;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const std::uint64_t begin = table().begin(tensor);
  return size > begin ? size - begin : 0;
}

Failure Catalog::current_failure(std::size_t tensor) const {
  const ByteSource& source = source_of(tensor);
  const auto copies_of = [&](auto error) -> Failure {
    error.in_tensor(table().name(tensor)).in_file(source.name());
    return [error] { throw error; };
  };
  try {
    throw;
  } catch (const OffloadEof& error) {
    return copies_of(error);
  } catch (const BudgetExceeded& error) {
    return copies_of(error);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kIo) return copies_of(error);
    const std::uint64_t begin = table().begin(tensor);
    const auto left = bytes_left(tensor);
    if (!left || *left >= table().nbytes(tensor)) return copies_of(error);
    return copies_of(
        OffloadEof(begin, table().nbytes(tensor), *left, "; the file has become shorter since it was opened"));
  } catch (...) {
    return [error = std::current_exception()] { std::rethrow_exception(error); };
  }
}

}  // namespace weightstore::pager
