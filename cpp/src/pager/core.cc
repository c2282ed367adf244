#include "pager/core.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "io/checked_io.h"
#include "pager/budget.h"

namespace weightstore::pager {
namespace {

std::uint64_t since(Clock::time_point start) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
}

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
      (options.direct == DirectReads::kAuto && total_bytes(this->table()) > available_memory())) {
    for (const auto& source : sources) {
      const bool file = source->descriptor() >= 0;
      direct_.push_back(file ? std::make_unique<io::DirectFile>(io::system_file_ops(), source->descriptor()) : nullptr);
    }
  }
  // Two of the largest tensors: what leaves while the next one comes, and the one after that.
  for (std::size_t i = 0; i < slots_.size(); ++i) pool_limit_ = std::max(pool_limit_, 2 * plan_of(i).buffer_bytes());
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
  note_pass(i);
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
  return hit(i);
}

Block* Core::acquire(std::size_t i, Wait wait) {
  Garbage garbage;
  Lock lock(mutex_);
  if (slots_[i].presence == Presence::kResident) return hit(i);
  check_open();
  if (process_ != ::getpid()) adopt_after_fork();
  note_pass(i);
  if (slots_[i].presence == Presence::kHeld) {
    if (Block* block = resurrect(i, garbage)) return block;
  }
  if (slots_[i].presence == Presence::kLoading) return join(lock, loading_.at(i));

  const auto started = Clock::now();
  const LoadPtr load = begin(i, false);
  load->waiters = 1;
  lead(lock, load, started + wait.value_or(default_wait_));
  totals_.wait_ns += since(started);
  per_slot_[i].wait_ns += since(started);
  if (!load->raise) return load->result;
  ++totals_.errors;
  ++per_slot_[i].errors;
  lock.unlock();
  load->raise();
  return nullptr;
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

Block* Core::join(Lock& lock, LoadPtr load) {
  const std::size_t i = load->slot();
  const auto started = Clock::now();
  ++load->waiters;
  for (PagerStats* stats : {&totals_, &per_slot_[i]}) {
    ++stats->coalesced_waits;
    if (load->is_prefetch()) ++stats->prefetch_late;
  }
  if (load->has_chunks()) {
    lock.unlock();
    load->read();
    lock.lock();
  }
  load->ended.wait(lock, [&] { return load->done; });
  totals_.wait_ns += since(started);
  per_slot_[i].wait_ns += since(started);
  if (!load->raise) {
    if (slots_[i].block == load->result) slots_.use(slots_[i]);
    return load->result;
  }
  ++totals_.errors;
  ++per_slot_[i].errors;
  lock.unlock();
  load->raise();
  return nullptr;
}

Core::LoadPtr Core::begin(std::size_t i, bool prefetch) {
  auto load = std::make_shared<Load>(static_cast<std::uint32_t>(i), prefetch);
  loading_.emplace(i, load);
  if (!prefetch) {
    for (PagerStats* stats : {&totals_, &per_slot_[i]}) {
      ++stats->misses;
      if (slots_[i].presence == Presence::kQueued) ++stats->prefetch_late;
    }
  }
  slots_[i].presence = Presence::kLoading;
  return load;
}

void Core::lead(Lock& lock, const LoadPtr& load, Clock::time_point deadline) {
  const std::size_t i = load->slot();
  const auto started = Clock::now();
  Garbage garbage;
  bool reserved = false;
  load->led = true;
  try {
    reserve(lock, *load, deadline, garbage);
    reserved = true;
    lock.unlock();
    garbage.clear();
    std::unique_ptr<Block> block(fetch(load));
    const auto read = Clock::now();
    if (reader_) reader_->check(i, block->bytes);
    const std::uint64_t checksum_ns = since(read);
    lock.lock();
    publish(*load, block.release(), garbage);
    for (PagerStats* stats : {&totals_, &per_slot_[i]}) {
      stats->checksum_ns += checksum_ns;
      stats->load_ns += since(started);
    }
  } catch (...) {
    auto raise = explain(i);
    if (!lock.owns_lock()) lock.lock();
    abandon(*load, garbage);
    const bool skipped = load->is_prefetch() && !reserved;
    for (PagerStats* stats : {&totals_, &per_slot_[i]}) ++(skipped ? stats->prefetch_skipped : stats->load_errors);
    load->raise = std::move(raise);
  }
  load->done = true;
  loading_.erase(i);
  load->ended.notify_all();
  if (strict_) room_->notify_all();
  if (garbage.empty()) return;
  lock.unlock();
  garbage.clear();
  lock.lock();
}

LoadPlan Core::plan_of(std::size_t i) const {
  const std::uint32_t source = table().source_of(i);
  io::DirectFile* direct = direct_.empty() ? nullptr : direct_[source].get();
  return LoadPlan::make(*table().sources()[source], direct, table().begin(i), table().nbytes(i));
}

Block* Core::fetch(const LoadPtr& load) {
  const std::size_t i = load->slot();
  const LoadPlan plan = plan_of(i);
  auto block = std::make_unique<Block>();
  block->slot = load->slot();
  block->core = shared_from_this();
  const std::uint32_t source_number = table().source_of(i);
  if (viewable_[source_number]) {
    const auto& source = table().sources()[source_number];
    source->populate(plan.offset, plan.size);
    SharedBytes view = source->view(plan.offset, plan.size).value();
    block->bytes = view.bytes;
    // The last to let go of it gives the memory back to the system.
    block->view_owner = std::shared_ptr<const void>(
        view.bytes.data(),
        [source, owner = std::move(view.owner), plan](const void*) { source->discard(plan.offset, plan.size); });
    return block.release();
  }
  if (reader_) reader_->check_expansion(plan.size);
  if (load->buffer.owner == nullptr) load->buffer = BufferPool::allocate(load->charge);
  load->start(plan, load->buffer.bytes.data());
  if (load->is_prefetch()) {
    // Between chunks the reader looks whether somebody waits for something else.
    do {
      load->read([this] { return demand_.load(std::memory_order_relaxed) > 0; });
      if (demand_.load(std::memory_order_relaxed) == 0) continue;
      Lock lock(mutex_);
      help(lock);
    } while (load->has_chunks());
  } else {
    if (load->chunks() > 1) ask_for_help(load);
    load->read();
  }
  load->finish();
  block->bytes = ConstBytes(load->buffer.bytes.data() + plan.padding, plan.size);
  return block.release();
}

void Core::publish(Load& load, Block* block, Garbage& garbage) {
  const std::size_t i = load.slot();
  const std::uint64_t size = block->bytes.size();
  block->charge = std::exchange(load.charge, 0);
  block->buffer = std::move(load.buffer);
  block->refs.store(load.waiters + (closed_ ? 0 : 1), std::memory_order_relaxed);
  load.result = block;
  for (PagerStats* stats : {&totals_, &per_slot_[i]}) {
    ++stats->loads;
    stats->bytes_read += size;
  }
  if (closed_) {
    // Whoever waits for it still gets it; nobody else will.
    slots_[i].presence = load.waiters > 0 ? Presence::kHeld : Presence::kAbsent;
    slots_[i].block = load.waiters > 0 ? block : nullptr;
    if (load.waiters == 0) bury(block, garbage);
    return;
  }
  const bool unused = load.is_prefetch() && load.waiters == 0;
  if (!strict_) evict_for(size, {.no_prefetched = unused}, garbage);
  slots_.insert(i, block, unused);
  if (over_budget_bytes() > 0) ++totals_.over_budget_events;
}

void Core::abandon(Load& load, Garbage& garbage) {
  slots_[load.slot()].presence = Presence::kAbsent;
  const std::uint64_t charge = std::exchange(load.charge, 0);
  if (load.buffer.owner != nullptr && charge >= BufferPool::kPooled) {
    pool_.put(std::exchange(load.buffer, {}));
    if (!strict_) trim(pool_limit_, garbage);
    return;
  }
  live_bytes_ -= charge;
  garbage.push_back(std::exchange(load.buffer, {}).owner);
}

std::function<void()> Core::explain(std::size_t i) const {
  const std::string_view name = table().name(i);
  const ByteSource& source = source_of(i);
  // A copy for each of those who wait: an exception that several threads handle must not be one object.
  const auto copies_of = [&](auto error) -> std::function<void()> {
    error.in_tensor(name).in_file(source.name());
    return [error] { throw error; };
  };
  try {
    throw;
  } catch (const OffloadEof& error) {
    return copies_of(error);
  } catch (const BudgetExceeded& error) {
    return copies_of(error);
  } catch (const Error& error) {
    struct stat status;
    const bool file = error.code() == ErrorCode::kIo && source.descriptor() >= 0 &&
                      io::system_file_ops().fstat(source.descriptor(), &status) == 0;
    if (!file) return copies_of(error);
    const std::uint64_t begin = table().begin(i);
    const auto size = static_cast<std::uint64_t>(status.st_size);
    const std::uint64_t available = size > begin ? size - begin : 0;
    if (available >= table().nbytes(i)) return copies_of(error);
    return copies_of(OffloadEof(begin, table().nbytes(i), available, "; the file was cut short since it was opened"));
  } catch (...) {
    return [error = std::current_exception()] { std::rethrow_exception(error); };
  }
}

}  // namespace weightstore::pager
