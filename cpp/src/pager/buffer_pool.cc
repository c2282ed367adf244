#include "pager/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/checked.h"
#include "io/available_memory.h"
#include "io/checked_io.h"
#include "io/huge_buffer.h"

namespace weightstore::pager {
namespace {

constexpr std::uint64_t kBulk = 2 << 20;

SharedMutableBytes allocate_aligned(std::uint64_t capacity, std::size_t alignment) {
  auto* data = static_cast<std::byte*>(::operator new(capacity == 0 ? 1 : capacity, std::align_val_t{alignment}));
  return {{data, capacity},
          std::shared_ptr<void>(data, [alignment](void* p) { ::operator delete(p, std::align_val_t{alignment}); })};
}

}  // namespace

std::uint64_t BufferPool::capacity_for(std::uint64_t size) {
  if (size < kPooled) return size;
  const std::uint64_t step = std::max(std::bit_floor(size) / 256, io::kDirectAlignment);
  const auto rounded = checked_round_up(size, step);
  if (!rounded) throw std::bad_alloc();
  return *rounded;
}

SharedMutableBytes BufferPool::allocate(std::uint64_t capacity) {
  io::require_memory(capacity);
  if (capacity >= kBulk) return io::allocate_bulk(capacity);
  return allocate_aligned(capacity, capacity >= kPooled ? io::kDirectAlignment : 64);
}

std::optional<SharedMutableBytes> BufferPool::take(std::uint64_t capacity) {
  const auto found = free_.find(capacity);
  if (found == free_.end()) return std::nullopt;
  SharedMutableBytes buffer = std::move(found->second.back());
  found->second.pop_back();
  if (found->second.empty()) free_.erase(found);
  free_bytes_ -= capacity;
  return buffer;
}

void BufferPool::put(SharedMutableBytes buffer) {
  const std::uint64_t capacity = buffer.bytes.size();
  free_[capacity].push_back(std::move(buffer));
  free_bytes_ += capacity;
}

std::uint64_t BufferPool::drop_one(Retired& retired) {
  if (free_.empty()) return 0;
  const std::uint64_t capacity = free_.rbegin()->first;
  retired.add(take(capacity)->owner);
  return capacity;
}

}  // namespace weightstore::pager
