#include "pager/core.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "io/available_memory.h"

namespace weightstore::pager {
namespace {

// Sizes up to this may be padded, rounded and doubled without a thought. No file is larger, but a source may say so.
constexpr std::uint64_t kLargestTensor = std::uint64_t{1} << 62;

std::uint64_t total_bytes(const TensorTable& table) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (__builtin_add_overflow(sum, table.nbytes(i), &sum)) return kUnlimited;
  }
  return sum;
}

}  // namespace

Core::Core(std::optional<Reader> reader, TensorTable table, const PagerOptions& options)
    : reader_(std::move(reader)),
      raw_table_(std::move(table)),
      strict_(options.strict),
      reader_count_(options.readers),
      default_wait_(options.wait),
      slots_(this->table()),
      budget_(options.budget),
      first_slot_(slots_.size()),
      room_(std::make_unique<std::condition_variable>()),
      process_(::getpid()),
      work_(std::make_unique<std::condition_variable>()),
      idle_(std::make_unique<std::condition_variable>()) {
  const auto& sources = this->table().sources();
  for (const auto& source : sources) {
    viewable_.push_back(options.zero_copy && source->size() > 0 && source->view(0, 1).has_value());
  }
  if (options.direct == DirectReads::kAlways ||
      (options.direct == DirectReads::kAuto && total_bytes(this->table()) > io::available_memory(io::Swap::kIgnored))) {
    for (const auto& source : sources) {
      const bool file = source->descriptor() >= 0;
      direct_.push_back(file ? std::make_unique<io::DirectFile>(io::system_file_ops(), source->descriptor()) : nullptr);
    }
  }
  // Two of the largest tensors: what leaves while the next one comes, and the one after that.
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (this->table().nbytes(i) > kLargestTensor) {
      throw Error(ErrorCode::kLimit, "is " + std::to_string(this->table().nbytes(i)) + " bytes; no memory holds that")
          .in_tensor(this->table().name(i))
          .in_file(source_of(i).name());
    }
    pool_limit_ = std::max(pool_limit_, 2 * plan_of(i).buffer_bytes());
  }
}

Core::~Core() = default;

std::size_t Core::checked(std::size_t slot) const {
  if (slot < slots_.size()) return slot;
  throw Error(ErrorCode::kNotFound,
              "there is no slot " + std::to_string(slot) + "; there are " + std::to_string(slots_.size()));
}

std::size_t Core::find(std::string_view name) {
  if (const auto slot = table().find(name)) return *slot;
  {
    const std::lock_guard lock(mutex_);
    ++totals_.errors;
  }
  return table().at(name);
}

void Core::check_open() const {
  if (closed_) throw Error(ErrorCode::kInvalidArgument, "the pager is closed");
}

Block* Core::hit(std::size_t i) {
  Slot& slot = slots_[i];
  slot.block->refs.fetch_add(1, std::memory_order_relaxed);
  slots_.use(slot);
  ++slot.hits;
  ++totals_.hits;
  if (slot.prefetched) {
    slots_.clear_prefetched(i);
    ++totals_.prefetch_used;
    ++per_slot_[i].prefetch_used;
  }
  return slot.block;
}

Block* Core::try_acquire(std::size_t i) {
  const std::lock_guard lock(mutex_);
  if (slots_[i].presence != Presence::kResident) return nullptr;
  note_pass(i);
  return hit(i);
}

Block* Core::present(std::size_t i, Garbage& garbage) {
  if (slots_[i].presence == Presence::kResident) return hit(i);
  if (slots_[i].presence == Presence::kHeld && !closed_) return resurrect(i, garbage);
  return nullptr;
}

Block* Core::acquire(std::size_t i, Wait wait, const Progress& progress) {
  Garbage garbage;
  Lock lock(mutex_);
  note_pass(i);
  if (slots_[i].presence == Presence::kResident) return hit(i);
  if (process_ != ::getpid()) adopt_after_fork();
  Patience patience(wait.value_or(default_wait_), progress);
  for (;;) {
    check_open();
    if (Block* block = present(i, garbage)) return block;
    const LoadPtr load = enlist(i);
    if (const Failure failure = await(lock, load, patience, garbage)) {
      lock.unlock();
      failure();
    }
    if (load->result != nullptr) return load->result;
  }
}

Block* Core::resurrect(std::size_t i, Garbage& garbage) {
  Slot& slot = slots_[i];
  Block* block = slot.block;
  if (!block->try_reference()) {
    // Its last holder is on the way to the mutex, and will find that the slot is no longer about its block.
    slot.block = nullptr;
    slot.presence = Presence::kAbsent;
    return nullptr;
  }
  block->refs.fetch_add(1, std::memory_order_relaxed);
  if (!strict_) evict_for(block->bytes.size(), {}, garbage);
  slots_.insert(i, block, false);
  ++totals_.resurrected;
  ++per_slot_[i].resurrected;
  return block;
}

LoadPlan Core::plan_of(std::size_t i) const {
  const std::uint32_t source = table().source_of(i);
  io::DirectFile* direct = direct_.empty() ? nullptr : direct_[source].get();
  return LoadPlan::make(*table().sources()[source], direct, table().begin(i), table().nbytes(i));
}

std::uint64_t Core::charge_of(std::size_t i) const {
  const LoadPlan plan = plan_of(i);
  return viewable_[table().source_of(i)] ? plan.size : BufferPool::capacity_for(plan.buffer_bytes());
}

}  // namespace weightstore::pager
