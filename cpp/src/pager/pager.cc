#include "weightstore/pager.h"

#include <utility>

#include "io/file_source.h"
#include "pager/pager_impl.h"
#include "pager/raw_table.h"

namespace weightstore {
namespace {

std::shared_ptr<pager::PagerImpl> make_impl(std::optional<Reader> reader, TensorTable table,
                                            const PagerOptions& options) {
  if (options.readers < 1 || options.readers > 64) {
    throw Error(ErrorCode::kInvalidArgument,
                "readers is " + std::to_string(options.readers) + "; it must be from 1 to 64");
  }
  if (options.policy == EvictionPolicy::kSchedule ? options.schedule.empty() : !options.schedule.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "a schedule with at least one tensor belongs to EvictionPolicy::kSchedule");
  }
  auto impl = std::make_shared<pager::PagerImpl>(std::move(reader), std::move(table), options);
  std::string missing;
  for (const std::string& name : options.pinned) {
    if (const auto tensor = impl->table().find(name)) {
      impl->pin(*tensor);
    } else {
      missing += (missing.empty() ? "'" : ", '") + printable(name) + "'";
    }
  }
  if (!missing.empty()) throw Error(ErrorCode::kNotFound, "cannot pin tensors that do not exist: " + missing);
  return impl;
}

Reader open_for_paging(const std::filesystem::path& path, const PagerOptions& options) {
  ReadOptions read;
  read.map = options.zero_copy;
  read.verify = Verify::kLazy;
  return Reader::open(path, read);
}

}  // namespace

ResidentTensor::ResidentTensor(pager::TensorState* state) : state_(state) {
  if (state == nullptr) return;
  bytes_ = state->bytes;
  slot_ = state->tensor;
}

ResidentTensor::ResidentTensor(ResidentTensor&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)), bytes_(std::exchange(other.bytes_, {})), slot_(other.slot_) {}

ResidentTensor& ResidentTensor::operator=(ResidentTensor&& other) noexcept {
  if (this != &other) {
    release();
    state_ = std::exchange(other.state_, nullptr);
    bytes_ = std::exchange(other.bytes_, {});
    slot_ = other.slot_;
  }
  return *this;
}

ResidentTensor ResidentTensor::clone() const {
  if (state_ != nullptr) state_->references.add(1);
  return ResidentTensor(state_);
}

SharedBytes ResidentTensor::share() const {
  if (state_ == nullptr) return {};
  // Taken before the shared_ptr is made: when that runs out of memory, it drops the reference.
  state_->references.add(1);
  return {bytes_, std::shared_ptr<const void>(state_, [](const void* state) {
            pager::PagerImpl::drop(*static_cast<pager::TensorState*>(const_cast<void*>(state)));
          })};
}

std::optional<SharedMutableBytes> ResidentTensor::share_writable() const {
  if (state_ == nullptr) return SharedMutableBytes{};
  SharedBytes shared = share();
  if (state_->frame->view_owner == nullptr) {
    const MutableBytes bytes(const_cast<std::byte*>(shared.bytes.data()), shared.bytes.size());
    return SharedMutableBytes{bytes, std::const_pointer_cast<void>(shared.owner)};
  }
  const TensorTable& table = state_->frame->impl->table();
  auto view = table.sources()[table.source_of(slot_)]->private_view(table.begin(slot_), table.nbytes(slot_));
  if (!view) return std::nullopt;
  // Holds the mapping, and the tensor: the account counts it as held.
  auto both = std::make_shared<std::pair<std::shared_ptr<void>, SharedBytes>>(view->owner, std::move(shared));
  return SharedMutableBytes{view->bytes, std::move(both)};
}

void ResidentTensor::release() noexcept {
  if (state_ == nullptr) return;
  bytes_ = {};
  pager::PagerImpl::drop(*std::exchange(state_, nullptr));
}

std::shared_ptr<const ByteSource> raw_file(const std::filesystem::path& path) {
  return io::open_file(path, false, io::current_file_ops());
}

std::shared_ptr<const ByteSource> raw_mapped_file(const std::filesystem::path& path) {
  return io::open_file(path, true, io::current_file_ops());
}

Pager::Pager(std::shared_ptr<const ByteSource> source, std::span<const NamedEntry> entries, PagerOptions options)
    : impl_(make_impl(std::nullopt, pager::make_raw_table(std::move(source), entries), options)) {}

Pager::Pager(Reader reader, PagerOptions options) : impl_(make_impl(std::move(reader), {}, options)) {}

Pager::Pager(const std::filesystem::path& path, PagerOptions options)
    : impl_(make_impl(open_for_paging(path, options), {}, options)) {}

Pager::~Pager() { impl_->close(); }

const TensorTable& Pager::table() const { return impl_->table(); }
std::size_t Pager::slot(std::string_view name) const { return impl_->find(name); }

ResidentTensor Pager::acquire(std::size_t slot, std::optional<std::chrono::milliseconds> wait,
                              const Progress& progress) {
  return ResidentTensor(&impl_->acquire(impl_->catalog().checked(slot), wait, progress));
}

ResidentTensor Pager::acquire(std::string_view name, std::optional<std::chrono::milliseconds> wait,
                              const Progress& progress) {
  return ResidentTensor(&impl_->acquire(impl_->find(name), wait, progress));
}

ResidentTensor Pager::try_acquire(std::size_t slot) {
  return ResidentTensor(impl_->try_acquire(impl_->catalog().checked(slot)));
}

ResidentTensor Pager::acquire(std::size_t slot) {
  if (pager::TensorState* state = impl_->try_hit(slot)) return ResidentTensor(state);
  return acquire(slot, std::nullopt);
}

ResidentTensor Pager::acquire(std::string_view name) { return acquire(impl_->find(name)); }

std::vector<ResidentTensor> Pager::acquire_many(std::span<const std::size_t> slots,
                                                std::optional<std::chrono::milliseconds> wait,
                                                const Progress& progress) {
  for (const std::size_t slot : slots) impl_->catalog().checked(slot);
  std::vector<ResidentTensor> result(slots.size());
  const std::vector<pager::TensorState*> states = impl_->acquire_many(slots, wait, progress);
  for (std::size_t i = 0; i < states.size(); ++i) result[i] = ResidentTensor(states[i]);
  return result;
}

void Pager::prefetch(std::span<const std::size_t> slots) {
  for (const std::size_t slot : slots) impl_->catalog().checked(slot);
  impl_->prefetch(slots);
}

void Pager::finish_prefetch(const Progress& progress) { impl_->finish_prefetch(progress); }
void Pager::pin(std::size_t slot) { impl_->pin(impl_->catalog().checked(slot)); }
void Pager::unpin(std::size_t slot) { impl_->unpin(impl_->catalog().checked(slot)); }
bool Pager::evict(std::size_t slot) { return impl_->evict(impl_->catalog().checked(slot)); }
std::size_t Pager::clear() { return impl_->clear(); }
void Pager::set_budget(std::uint64_t bytes, bool follow) { impl_->set_budget(bytes, follow); }
void Pager::close() { impl_->close(); }

bool Pager::is_resident(std::size_t slot) const {
  impl_->catalog().checked(slot);
  return impl_->look(
      [&](const auto& account) { return account.states()[slot].presence == pager::Presence::kResident; });
}

bool Pager::is_pinned(std::size_t slot) const {
  impl_->catalog().checked(slot);
  return impl_->look([&](const auto& account) { return account.states()[slot].pins > 0; });
}

std::uint64_t Pager::resident_bytes() const {
  return impl_->look([](const auto& account) { return account.states().resident_bytes(); });
}

std::size_t Pager::resident_count() const {
  return impl_->look([](const auto& account) { return account.states().resident_count(); });
}

std::uint64_t Pager::budget_bytes() const {
  return impl_->look([](const auto& account) { return account.budget(); });
}

std::uint64_t Pager::live_bytes() const {
  return impl_->look([](const auto& account) { return account.live_bytes(); });
}

std::uint64_t Pager::over_budget_bytes() const {
  return impl_->look([](const auto& account) { return account.over_budget_bytes(); });
}

std::string Pager::policy_state() const {
  return impl_->look(
      [](const auto& account) { return account.policy() == nullptr ? "lru" : account.policy()->describe(); });
}

bool Pager::reads_directly() const { return impl_->catalog().reads_directly(); }
PagerStats Pager::stats() const { return impl_->stats(); }
PagerStats Pager::stats(std::size_t slot) const { return impl_->stats(impl_->catalog().checked(slot)); }
void Pager::reset_stats() { impl_->reset_stats(); }
void Pager::before_fork() { impl_->before_fork(); }
void Pager::after_fork() { impl_->after_fork(); }

}  // namespace weightstore
