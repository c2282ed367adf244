// A load from its begin to its end: joined, led, published; or given up.

#include <sys/stat.h>

#include <utility>

#include "io/checked_io.h"
#include "pager/core.h"

namespace weightstore::pager {
namespace {

std::uint64_t since(Clock::time_point start) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
}

}  // namespace

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

Core::LoadPtr Core::enlist(std::size_t i) {
  LoadPtr load;
  if (slots_[i].presence == Presence::kLoading) {
    load = loading_.at(i);
    for (PagerStats* stats : {&totals_, &per_slot_[i]}) {
      ++stats->coalesced_waits;
      if (load->is_prefetch()) ++stats->prefetch_late;
    }
  } else {
    load = begin(i, false);
  }
  ++load->waiters;
  return load;
}

Failure Core::await(Lock& lock, const LoadPtr& load, Patience& patience, Garbage& garbage) {
  const std::size_t i = load->slot();
  const auto started = Clock::now();
  const bool joined = load->led;
  Failure failure = joined ? join(lock, load, patience, garbage) : lead(lock, load, patience);
  for (PagerStats* stats : {&totals_, &per_slot_[i]}) {
    stats->wait_ns += since(started);
    if (failure) ++stats->errors;
    // Begun anew, it will be counted as what it comes to; unless the counters have been reset meanwhile.
    if (joined && !failure && load->result == nullptr && stats->coalesced_waits > 0) --stats->coalesced_waits;
  }
  return failure;
}

Failure Core::join(Lock& lock, const LoadPtr& load, Patience& patience, Garbage& garbage) {
  const std::size_t i = load->slot();
  try {
    while (!load->done) {
      // A read takes as long as it takes; but its room may never come.
      const bool waits_for_room = strict_ && !load->reserved && !load->is_prefetch();
      if (waits_for_room && patience.is_over()) {
        throw BudgetExceeded(charge_of(i), budget_, live_bytes_, holders());
      }
      const bool look = patience.is_time_to_look();
      if (load->has_chunks() || look) {
        lock.unlock();
        if (look) patience.look(load->bytes_begun(), table().nbytes(i), table().name(i));
        load->read([&] { return patience.is_time_to_look(); });
        lock.lock();
      } else {
        patience.sleep(load->ended, lock, waits_for_room);
      }
    }
  } catch (...) {
    Failure failure = explain(i);
    if (!lock.owns_lock()) lock.lock();
    leave(load, garbage);
    return failure;
  }
  if (load->result != nullptr && slots_[i].block == load->result) slots_.use(slots_[i]);
  return load->raise;
}

Failure Core::lead(Lock& lock, const LoadPtr& load, Patience& patience) {
  const std::size_t i = load->slot();
  const auto started = Clock::now();
  Garbage garbage;
  Failure failure;
  load->led = true;
  try {
    reserve(lock, *load, patience, garbage);
    load->reserved = true;
    lock.unlock();
    garbage.clear();
    std::unique_ptr<Block> block(fetch(load, patience));
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
    failure = explain(i);
    if (!lock.owns_lock()) lock.lock();
    abandon(*load, garbage);
    const bool skipped = load->is_prefetch() && !load->reserved;
    for (PagerStats* stats : {&totals_, &per_slot_[i]}) ++(skipped ? stats->prefetch_skipped : stats->load_errors);
    if (load->reserved && !patience.gave_up()) load->raise = failure;
  }
  end(*load);
  if (!garbage.empty()) {
    lock.unlock();
    garbage.clear();
    lock.lock();
  }
  return failure;
}

void Core::leave(const LoadPtr& load, Garbage& garbage) {
  if (load->result != nullptr) return unreference(load->result, garbage);
  --load->waiters;
  if (load->led) return;
  load->led = true;
  abandon(*load, garbage);
  end(*load);
}

void Core::end(Load& load) {
  load.done = true;
  loading_.erase(load.slot());
  load.ended.notify_all();
  if (strict_) room_->notify_all();
}

Block* Core::fetch(const LoadPtr& load, Patience& patience) {
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
    read(*load, patience);
  }
  load->finish();
  block->bytes = ConstBytes(load->buffer.bytes.data() + plan.padding, plan.size);
  return block.release();
}

void Core::read(Load& load, Patience& patience) {
  while (load.has_chunks()) {
    load.read([&] { return patience.is_time_to_look(); });
    if (!patience.is_time_to_look()) continue;
    try {
      patience.look(load.bytes_begun(), table().nbytes(load.slot()), table().name(load.slot()));
    } catch (...) {
      // Helpers may still be writing to the buffer: finish() waits for them.
      load.fail(std::current_exception());
    }
  }
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

Failure Core::explain(std::size_t i) const {
  const std::string_view name = table().name(i);
  const ByteSource& source = source_of(i);
  // A copy for each of those who wait: an exception that several threads handle must not be one object.
  const auto copies_of = [&](auto error) -> Failure {
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
