#include "pager/load_scheduler.h"

#include <algorithm>
#include <utility>

#include "io/locks/fork_count.h"
#include "pager/pager_impl.h"

namespace weightstore::pager {
namespace {

// So many tensors are queued or being read ahead at a time.
constexpr std::size_t kReadAhead = 8;

std::uint64_t ns_between(Clock::time_point start, Clock::time_point end) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(end - start).count());
}

}  // namespace

LoadScheduler::LoadScheduler(PagerImpl& owner, std::mutex& mutex, const Catalog& catalog, MemoryAccount& account,
                             Statistics& statistics, unsigned readers)
    : owner_(owner),
      mutex_(mutex),
      catalog_(catalog),
      account_(account),
      statistics_(statistics),
      readers_(*this, mutex, readers),
      forks_(io::fork_count()) {}

// ---- waiting callers ------------------------------------------------------------------------------------------------

LoadPtr LoadScheduler::begin(std::size_t tensor, bool prefetch) {
  LoadPtr load = prefetch ? nullptr : std::exchange(spare_, nullptr);
  if (load == nullptr) {
    load = std::make_shared<Load>(static_cast<std::uint32_t>(tensor), prefetch);
    load->is_shared = prefetch;
  } else {
    load->begin_again(static_cast<std::uint32_t>(tensor));
  }
  TensorState& state = account_.states()[tensor];
  state.load = static_cast<std::uint32_t>(loading_.size());
  loading_.push_back(load);
  if (!prefetch) {
    statistics_.count(state, [&](PagerStats& stats) {
      ++stats.misses;
      if (state.presence == Presence::kQueued) ++stats.prefetch_late;
    });
  }
  state.presence = Presence::kLoading;
  return load;
}

LoadPtr LoadScheduler::begin_or_join(std::size_t tensor) {
  LoadPtr load;
  if (TensorState& state = account_.states()[tensor]; state.presence == Presence::kLoading) {
    load = loading_.at(state.load);
    load->is_shared = true;
    statistics_.count(state, [&](PagerStats& stats) {
      ++stats.coalesced_waits;
      if (load->is_prefetch()) ++stats.prefetch_late;
    });
  } else {
    load = begin(tensor, false);
  }
  ++load->waiters;
  return load;
}

Failure LoadScheduler::wait(Lock& lock, const LoadPtr& load, Deadline& deadline, Clock::time_point started,
                            Retired& retired) {
  const bool joined = load->is_running;
  if (joined) read_ahead();
  Failure failure = joined ? help_and_wait(lock, load, deadline, retired) : run(lock, load, deadline, started);
  const bool must_begin_again = !failure && !load->has_result;
  const auto ended = joined ? Clock::now() : load->ended;
  statistics_.count(account_.states()[load->tensor()], [&](PagerStats& stats) {
    stats.wait_ns += ns_between(started, ended);
    if (failure) ++stats.errors;
    // The next attempt counts this acquire again. The counter is 0 when the counters were reset meanwhile.
    if (joined && must_begin_again && stats.coalesced_waits > 0) --stats.coalesced_waits;
  });
  return failure;
}

Failure LoadScheduler::help_and_wait(Lock& lock, const LoadPtr& load, Deadline& deadline, Retired& retired) {
  const std::size_t tensor = load->tensor();
  const TensorTable& table = catalog_.table();
  try {
    while (!load->is_done) {
      // The deadline is about room only: a read takes as long as it takes, but its room may never come.
      const bool waits_for_room = account_.strict() && !load->is_reserved && !load->is_prefetch();
      if (waits_for_room && deadline.has_passed()) throw account_.no_room_for(tensor);
      const bool report = deadline.is_report_due();
      if (load->has_chunks() || report) {
        lock.unlock();
        if (report) deadline.report(load->bytes_begun(), table.nbytes(tensor), table.name(tensor));
        load->read([&] { return deadline.is_report_due(); });
        lock.lock();
      } else {
        deadline.sleep(load->done, lock, waits_for_room);
      }
    }
  } catch (...) {
    Failure failure = catalog_.current_failure(tensor);
    if (!lock.owns_lock()) lock.lock();
    stop_waiting(load, retired);
    return failure;
  }
  TensorStates& states = account_.states();
  if (load->has_result) states.use(states[tensor]);
  return load->failure;
}

void LoadScheduler::stop_waiting(const LoadPtr& load, Retired& retired) {
  if (load->has_result) return account_.release(account_.states()[load->tensor()], retired);
  --load->waiters;
  if (load->is_running) return;
  // No thread runs this load, so no thread will end it.
  load->is_running = true;
  account_.cancel(*load, retired);
  end(*load);
}

// ---- running a load -------------------------------------------------------------------------------------------------

Failure LoadScheduler::run(Lock& lock, const LoadPtr& load, Deadline& deadline, Clock::time_point started) {
  const std::size_t tensor = load->tensor();
  TensorState& state = account_.states()[tensor];
  Retired retired;
  Failure failure;
  load->is_running = true;
  try {
    account_.reserve(lock, *load, deadline, retired);
    load->is_reserved = true;
    read_ahead();
    lock.unlock();
    retired.clear();
    std::unique_ptr<Frame> frame = fetch(load, deadline);
    std::uint64_t checksum_ns = 0;
    if (catalog_.may_verify()) {
      const auto fetched = Clock::now();
      catalog_.verify(tensor, frame->bytes);
      checksum_ns = ns_between(fetched, Clock::now());
    }
    const std::uint64_t size = frame->bytes.size();
    lock.lock();
    account_.publish(*load, std::move(frame), owner_, retired);
    load->ended = Clock::now();
    statistics_.count(state, [&](PagerStats& stats) {
      ++stats.loads;
      stats.bytes_read += size;
      stats.checksum_ns += checksum_ns;
      stats.load_ns += ns_between(started, load->ended);
    });
  } catch (...) {
    failure = catalog_.current_failure(tensor);
    if (!lock.owns_lock()) lock.lock();
    account_.cancel(*load, retired);
    load->ended = Clock::now();
    const bool skipped = load->is_prefetch() && !load->is_reserved;
    statistics_.count(state, [&](PagerStats& stats) { ++(skipped ? stats.prefetch_skipped : stats.load_errors); });
    // Only an error of the reading is an error of the waiting callers, too.
    if (load->is_reserved && !deadline.is_cancelled()) load->failure = failure;
  }
  end(*load);
  if (!retired.empty()) {
    lock.unlock();
    retired.clear();
    lock.lock();
  }
  return failure;
}

void LoadScheduler::end(Load& load) {
  load.is_done = true;
  TensorStates& states = account_.states();
  const std::uint32_t number = states[load.tensor()].load;
  std::swap(loading_[number], loading_.back());
  states[loading_[number]->tensor()].load = number;
  loading_.pop_back();
  load.done.notify_all();
  account_.notify_waiters();
  read_ahead();
}

std::unique_ptr<Frame> LoadScheduler::fetch(const LoadPtr& load, Deadline& deadline) {
  const std::size_t tensor = load->tensor();
  std::unique_ptr<Frame> frame = load->frame != nullptr ? std::move(load->frame) : std::make_unique<Frame>();
  frame->impl = &owner_;
  if (catalog_.is_view(tensor)) {
    catalog_.show(tensor, *frame);
    return frame;
  }
  const LoadPlan plan = catalog_.plan(tensor);
  catalog_.check_expansion(plan.size);
  if (load->buffer.owner == nullptr) load->buffer = BufferPool::allocate(load->charge);
  if (!catalog_.copy_from_mapping(tensor, load->buffer.bytes)) {
    load->start(plan, load->buffer.bytes.data());
    if (load->is_prefetch()) {
      read_for_prefetch(*load);
    } else {
      read_for_caller(load, deadline);
    }
    load->finish();
  }
  frame->bytes = ConstBytes(load->buffer.bytes.data() + plan.padding, plan.size);
  return frame;
}

void LoadScheduler::read_for_prefetch(Load& load) {
  // Callers come first: between chunks the thread helps those that wait for another tensor.
  do {
    load.read([this] { return readers_.has_demand(); });
    if (!readers_.has_demand()) continue;
    Lock lock(mutex_);
    readers_.help(lock);
  } while (load.has_chunks());
}

void LoadScheduler::read_for_caller(const LoadPtr& load, Deadline& deadline) {
  const TensorTable& table = catalog_.table();
  const std::size_t tensor = load->tensor();
  if (load->chunks() <= 1) return load->read();
  {
    const std::lock_guard lock(mutex_);
    load->is_shared = true;
    if (try_start_readers()) readers_.share_chunks(load);
  }
  while (load->has_chunks()) {
    load->read([&] { return deadline.is_report_due(); });
    if (!deadline.is_report_due()) continue;
    try {
      deadline.report(load->bytes_begun(), table.nbytes(tensor), table.name(tensor));
    } catch (...) {
      // Other threads may still be writing to the buffer: finish() waits for them, and then throws this.
      load->fail(std::current_exception());
    }
  }
}

// ---- reader threads -------------------------------------------------------------------------------------------------

void LoadScheduler::start_readers() {
  check_process();
  readers_.start(owner_.shared_from_this());
}

bool LoadScheduler::try_start_readers() {
  try {
    start_readers();
    return true;
  } catch (const Error&) {
    return false;
  }
}

void LoadScheduler::share(std::span<const LoadPtr> loads) {
  if (!try_start_readers()) return;
  for (const LoadPtr& load : loads) load->is_shared = true;
  readers_.share_loads(loads);
}

void LoadScheduler::recycle(LoadPtr load) {
  if (load->has_result && !load->is_shared && spare_ == nullptr) spare_ = std::move(load);
}

void LoadScheduler::run_load(Lock& lock, const LoadPtr& load) {
  const Progress no_progress;
  Deadline deadline(std::chrono::milliseconds(0), no_progress);
  run(lock, load, deadline, deadline.begun());
}

void LoadScheduler::queue_prefetch(std::size_t tensor) {
  TensorState& state = account_.states()[tensor];
  state.presence = Presence::kQueued;
  readers_.queue_prefetch(tensor);
  statistics_.count(state, [](PagerStats& stats) { ++stats.prefetch_issued; });
}

void LoadScheduler::run_prefetch(Lock& lock, std::size_t tensor) {
  TensorState& state = account_.states()[tensor];
  if (state.presence != Presence::kQueued) return;
  const bool reads_ahead = account_.strict() && account_.is_expected(tensor);  // reserve() looks for room
  if (!reads_ahead && !account_.has_room_to_prefetch(tensor, loading_bytes())) {
    state.presence = Presence::kAbsent;
    statistics_.count(state, [](PagerStats& stats) { ++stats.prefetch_skipped; });
    return;
  }
  LoadPtr load = begin(tensor, true);
  run_load(lock, load);
  if (!load->is_reserved) planned_ = 0;  // there was no room: the policy may expect it still
  // The load is destroyed without the mutex; ReaderThreads::help() says why.
  lock.unlock();
  load.reset();
  lock.lock();
}

// ---- reading ahead --------------------------------------------------------------------------------------------------

void LoadScheduler::note_acquire(std::size_t tensor) {
  const Policy::Step step = account_.note_acquire(tensor);
  if (step == Policy::Step::kExpected) {
    if (planned_ > 0) --planned_;
  } else {
    for (const std::size_t other : std::exchange(ahead_, {})) account_.give_up_prefetch(other);
    planned_ = 0;
  }
}

void LoadScheduler::read_ahead() {
  const Policy* policy = account_.policy();
  if (policy == nullptr || account_.is_closed()) return;
  const TensorStates& states = account_.states();
  planned_ = std::min(planned_, account_.take_nearest_evicted());  // what was evicted must be read again
  bool queued = false;
  while (planned_ < policy->horizon() && readers_.prefetches_left() < kReadAhead) {
    const std::size_t tensor = policy->expected(planned_);
    if (states[tensor].presence == Presence::kAbsent) {
      if (!has_room_ahead(tensor) || !try_start_readers()) break;
      queue_prefetch(tensor);
      queued = true;
      while (!ahead_.empty() && !is_ahead(ahead_.front())) ahead_.pop_front();
      ahead_.push_back(tensor);
    }
    ++planned_;
  }
  if (queued) readers_.wake();
}

bool LoadScheduler::is_ahead(std::size_t tensor) const {
  const TensorState& state = account_.states()[tensor];
  return state.presence == Presence::kQueued || state.presence == Presence::kLoading || state.prefetched;
}

bool LoadScheduler::has_room_ahead(std::size_t tensor) {
  if (account_.strict()) {
    std::uint64_t queued = 0;
    for (const std::size_t other : readers_.queued_prefetches()) queued += catalog_.charge(other);
    return account_.can_read_ahead(tensor, planned_, queued);
  }
  // The tensor in use is not protected, and needs room beside those that are.
  return account_.has_room_to_prefetch(tensor, loading_bytes() + catalog_.largest_buffer());
}

std::uint64_t LoadScheduler::loading_bytes() const {
  std::uint64_t sum = 0;
  for (const LoadPtr& load : loading_) sum += catalog_.table().nbytes(load->tensor());
  return sum;
}

void LoadScheduler::finish_prefetch(Lock& lock, Deadline& deadline) {
  while (const std::size_t left = readers_.prefetches_left()) {
    if (deadline.is_report_due()) {
      lock.unlock();
      deadline.report(0, left, {});
      lock.lock();
    } else {
      deadline.sleep(readers_.idle(), lock, false);
    }
  }
}

void LoadScheduler::cancel_queued_prefetches() {
  for (const std::size_t tensor : readers_.cancel_prefetches()) {
    TensorState& state = account_.states()[tensor];
    if (state.presence == Presence::kQueued) state.presence = Presence::kAbsent;
  }
}

std::vector<std::thread> LoadScheduler::stop() {
  cancel_queued_prefetches();
  return readers_.stop();
}

void LoadScheduler::check_process() {
  if (forks_ == io::fork_count()) return;
  forks_ = io::fork_count();
  // The loads are never destroyed: the threads of the parent that used them left them in an unknown state.
  const auto* parent = new auto(std::exchange(loading_, {}));
  for (const LoadPtr& load : *parent) account_.forget(*load);
  account_.abandon_waiters();
  cancel_queued_prefetches();
  readers_.abandon_threads();
  planned_ = 0;
  ahead_.clear();
}

}  // namespace weightstore::pager
