#include "weightstore/pager.h"

#include <utility>

#include "base/checked.h"
#include "pager/core.h"

namespace weightstore {
namespace {

TensorTable table_of(std::shared_ptr<const ByteSource> source, std::span<const NamedEntry> entries) {
  constexpr std::size_t kListed = 16;
  const std::uint64_t size = source->size();
  const std::string source_name = source->name();
  TensorTable table;
  table.add_source(std::move(source));
  const NamedEntry* first_bad = nullptr;
  std::string others;
  std::size_t bad = 0;
  for (const NamedEntry& named : entries) {
    const auto end = checked_add(named.entry.offset, named.entry.size);
    if (!end || *end > size) {
      if (first_bad == nullptr) {
        first_bad = &named;
      } else if (bad <= kListed) {
        others += (others.empty() ? "" : ", ") + ("'" + printable(named.name) + "' (") +
                  std::to_string(named.entry.size) + " at " + std::to_string(named.entry.offset) + ")";
      }
      ++bad;
      continue;
    }
    const std::uint64_t shape[] = {named.entry.size};
    table.add({named.name, DType::kU8, shape, 0, named.entry.offset, *end, std::nullopt, nullptr});
  }
  if (first_bad != nullptr) {
    std::string more = " in a source of " + std::to_string(size);
    if (bad > 1) more += "; nor are those of " + others;
    if (bad > kListed + 1) more += " and " + std::to_string(bad - kListed - 1) + " more";
    const std::uint64_t offset = first_bad->entry.offset;
    OffloadEof error(offset, first_bad->entry.size, offset < size ? size - offset : 0, more);
    error.in_tensor(first_bad->name).in_file(source_name);
    throw error;
  }
  try {
    table.finish();
  } catch (const Error& error) {
    throw Error(ErrorCode::kInvalidArgument, error.message()).in_tensor(error.tensor()).in_file(source_name);
  }
  return table;
}

std::shared_ptr<pager::Core> make_core(std::optional<Reader> reader, TensorTable table, const PagerOptions& options) {
  if (options.readers < 1 || options.readers > 64) {
    throw Error(ErrorCode::kInvalidArgument,
                "readers is " + std::to_string(options.readers) + "; it is a number of threads from 1 to 64");
  }
  auto core = std::make_shared<pager::Core>(std::move(reader), std::move(table), options);
  std::string missing;
  for (const std::string& name : options.pinned) {
    if (const auto slot = core->table().find(name)) {
      core->pin(*slot);
    } else {
      missing += (missing.empty() ? "'" : ", '") + printable(name) + "'";
    }
  }
  if (!missing.empty()) throw Error(ErrorCode::kNotFound, "to be pinned, but not there: " + missing);
  return core;
}

Reader open_for_paging(const std::filesystem::path& path, const PagerOptions& options) {
  ReadOptions read;
  read.map = options.zero_copy;
  read.verify = Verify::kLazy;
  return Reader::open(path, read);
}

}  // namespace

ResidentTensor::ResidentTensor(pager::Block* block) : block_(block) {
  if (block == nullptr) return;
  bytes_ = block->bytes;
  slot_ = block->slot;
}

ResidentTensor::ResidentTensor(ResidentTensor&& other) noexcept
    : block_(std::exchange(other.block_, nullptr)), bytes_(std::exchange(other.bytes_, {})), slot_(other.slot_) {}

ResidentTensor& ResidentTensor::operator=(ResidentTensor&& other) noexcept {
  if (this != &other) {
    release();
    block_ = std::exchange(other.block_, nullptr);
    bytes_ = std::exchange(other.bytes_, {});
    slot_ = other.slot_;
  }
  return *this;
}

SharedBytes ResidentTensor::share() const {
  if (block_ == nullptr) return {};
  // Before the allocation of the owner, which drops it also when that fails.
  block_->refs.fetch_add(1, std::memory_order_relaxed);
  return {bytes_, std::shared_ptr<const void>(block_, [](const void* block) {
            pager::Core::drop(static_cast<pager::Block*>(const_cast<void*>(block)));
          })};
}

std::optional<SharedMutableBytes> ResidentTensor::share_writable() const {
  if (block_ == nullptr) return SharedMutableBytes{};
  SharedBytes shared = share();
  if (block_->view_owner == nullptr) {
    const MutableBytes bytes(const_cast<std::byte*>(shared.bytes.data()), shared.bytes.size());
    return SharedMutableBytes{bytes, std::const_pointer_cast<void>(shared.owner)};
  }
  const TensorTable& table = block_->core->table();
  auto view = table.sources()[table.source_of(slot_)]->private_view(table.begin(slot_), table.nbytes(slot_));
  if (!view) return std::nullopt;
  // Holds the mapping it points into and, for the account, the tensor.
  auto both = std::make_shared<std::pair<std::shared_ptr<void>, SharedBytes>>(view->owner, std::move(shared));
  return SharedMutableBytes{view->bytes, std::move(both)};
}

void ResidentTensor::release() noexcept {
  if (block_ == nullptr) return;
  bytes_ = {};
  pager::Core::drop(std::exchange(block_, nullptr));
}

Pager::Pager(std::shared_ptr<const ByteSource> source, std::span<const NamedEntry> entries, PagerOptions options)
    : core_(make_core(std::nullopt, table_of(std::move(source), entries), options)) {}

Pager::Pager(Reader reader, PagerOptions options) : core_(make_core(std::move(reader), {}, options)) {}

Pager::Pager(const std::filesystem::path& path, PagerOptions options)
    : core_(make_core(open_for_paging(path, options), {}, options)) {}

Pager::~Pager() { core_->close(); }

const TensorTable& Pager::table() const { return core_->table(); }
std::size_t Pager::slot(std::string_view name) const { return core_->find(name); }

ResidentTensor Pager::acquire(std::size_t slot, std::optional<std::chrono::milliseconds> wait,
                              const Progress& progress) {
  return ResidentTensor(core_->acquire(core_->checked(slot), wait, progress));
}

ResidentTensor Pager::acquire(std::string_view name, std::optional<std::chrono::milliseconds> wait,
                              const Progress& progress) {
  return ResidentTensor(core_->acquire(core_->find(name), wait, progress));
}

ResidentTensor Pager::try_acquire(std::size_t slot) { return ResidentTensor(core_->try_acquire(core_->checked(slot))); }

std::vector<ResidentTensor> Pager::acquire_many(std::span<const std::size_t> slots,
                                                std::optional<std::chrono::milliseconds> wait,
                                                const Progress& progress) {
  for (const std::size_t slot : slots) core_->checked(slot);
  std::vector<ResidentTensor> result(slots.size());
  core_->acquire_many(slots, wait, progress,
                      [&](std::size_t k, pager::Block* block) { result[k] = ResidentTensor(block); });
  return result;
}

void Pager::prefetch(std::span<const std::size_t> slots) {
  for (const std::size_t slot : slots) core_->checked(slot);
  core_->prefetch(slots);
}

void Pager::finish_prefetch(const Progress& progress) { core_->finish_prefetch(progress); }
void Pager::pin(std::size_t slot) { core_->pin(core_->checked(slot)); }
void Pager::unpin(std::size_t slot) { core_->unpin(core_->checked(slot)); }
bool Pager::evict(std::size_t slot) { return core_->evict(core_->checked(slot)); }
std::size_t Pager::clear() { return core_->clear(); }
void Pager::set_budget(std::uint64_t bytes) { core_->set_budget(bytes); }
void Pager::close() { core_->close(); }

bool Pager::is_resident(std::size_t slot) const {
  core_->checked(slot);
  return core_->look(
      [&](const pager::Core& core) { return core.slots()[slot].presence == pager::Presence::kResident; });
}

bool Pager::is_pinned(std::size_t slot) const {
  core_->checked(slot);
  return core_->look([&](const pager::Core& core) { return core.slots()[slot].pins > 0; });
}

std::uint64_t Pager::resident_bytes() const {
  return core_->look([](const pager::Core& core) { return core.slots().resident_bytes(); });
}

std::size_t Pager::resident_count() const {
  return core_->look([](const pager::Core& core) { return core.slots().resident_count(); });
}

std::uint64_t Pager::budget_bytes() const {
  return core_->look([](const pager::Core& core) { return core.budget(); });
}

std::uint64_t Pager::live_bytes() const {
  return core_->look([](const pager::Core& core) { return core.live_bytes(); });
}

std::uint64_t Pager::over_budget_bytes() const {
  return core_->look([](const pager::Core& core) { return core.over_budget_bytes(); });
}

bool Pager::reads_directly() const { return core_->reads_directly(); }
PagerStats Pager::stats() const { return core_->stats(); }
PagerStats Pager::stats(std::size_t slot) const { return core_->stats(core_->checked(slot)); }
void Pager::reset_stats() { core_->reset_stats(); }
void Pager::before_fork() { core_->before_fork(); }
void Pager::after_fork() { core_->after_fork(); }

}  // namespace weightstore
