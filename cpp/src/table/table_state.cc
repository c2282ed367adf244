#include "table/table_state.h"

#include <algorithm>
#include <bit>
#include <random>

#include "table/names.h"

namespace weightstore {
namespace table {
namespace {

constexpr std::uint64_t kMaxRowBytes = std::uint64_t{64} << 20;

void check_options(const TableOptions& options) {
  check_table_name("a table", options.name);
  for (const std::string& child : options.children) check_table_name("a child", child);
  if (options.children.size() > kMaxChildren) {
    throw invalid("a table of " + std::to_string(options.children.size()) + " children; at most " +
                  std::to_string(kMaxChildren) + " fit into 12 bits");
  }
  std::vector<std::string> names = options.children;
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) throw invalid("two children are named '" + printable(*twice) + "'");
  constexpr std::uint32_t kMaxPageRows = 1 << 20;
  if (!std::has_single_bit(options.page_rows) || options.page_rows > kMaxPageRows) {
    throw invalid("pages of " + std::to_string(options.page_rows) + " rows; expected a power of two up to " +
                  std::to_string(kMaxPageRows));
  }
}

// As in RecIS, a table whose only child has the name of the table is not coalesced.
bool is_coalesced(const TableOptions& options) {
  return !options.children.empty() && (options.children.size() > 1 || options.children[0] != options.name);
}

std::uint64_t secret_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) ^ device();
}

}  // namespace

SlotInfo make_slot(std::string name, Shape shape, DType dtype) {
  check_slot_name(name);
  if (!in_safetensors(dtype) || bits_of(dtype) % 8 != 0 || dtype == DType::kF8_E8M0) {
    throw Error(ErrorCode::kUnsupported,
                "slot '" + printable(name) + "': a table cannot have elements of " + std::string(name_of(dtype)));
  }
  const auto bytes = contiguous_bytes(dtype, shape);
  if (!bytes || *bytes == 0 || *bytes > kMaxRowBytes) {
    throw invalid("slot '" + printable(name) + "': a row must have 1 to " + std::to_string(kMaxRowBytes) + " bytes");
  }
  return {std::move(name), dtype, std::move(shape), *bytes};
}

}  // namespace table

using table::invalid;
using table::RowInitializer;
using table::Stripe;

BucketRange shard_buckets(std::uint64_t index, std::uint64_t count, std::uint64_t size) {
  if (index >= count || count > size) {
    throw invalid("shard " + std::to_string(index) + " of " + std::to_string(count) + " of " + std::to_string(size) +
                  " buckets; expected index < count <= size");
  }
  const std::uint64_t least = size / count;
  const std::uint64_t larger = size % count;
  const std::uint64_t begin = index * least + std::min(index, larger);
  return {begin, begin + least + (index < larger ? 1 : 0), size};
}

HashTable::Impl::Impl(TableOptions&& given)
    : options(std::move(given)),
      map(options.buckets, options.stripes, table::is_coalesced(options) ? options.children.size() : 0),
      coalesced(table::is_coalesced(options)) {
  table::check_options(options);
  if (options.children.empty()) options.children.push_back(options.name);
  threads = options.threads != 0 ? options.threads : io::default_threads();
  const std::uint64_t secret = table::secret_number();
  for (std::size_t i = 0; i < map.count(); ++i) {
    stripes.push_back(std::make_unique<Stripe>(secret, options.page_rows, fresh));
  }
}

std::optional<std::size_t> HashTable::Impl::find_slot(std::string_view name) const {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].name == name) return i;
  }
  return std::nullopt;
}

const SlotInfo& HashTable::Impl::slot_at(std::size_t slot) const {
  if (slot >= slots.size()) {
    throw invalid("slot " + std::to_string(slot) + " of a table of " + std::to_string(slots.size()) + " slots");
  }
  return slots[slot];
}

std::optional<std::size_t> HashTable::Impl::usage_slot(std::string_view name) const {
  const auto slot = find_slot(name);
  if (slot && (slots[*slot].dtype != DType::kI64 || slots[*slot].row_bytes != 8)) {
    throw invalid("slot '" + std::string(name) + "' is " + std::string(name_of(slots[*slot].dtype)) +
                  " where touch() needs I64 of one element; give the slot another name");
  }
  return slot;
}

std::size_t HashTable::Impl::add_slot(SlotInfo slot, const Initializer& initializer) {
  if (find_slot(slot.name)) throw invalid("the table has a slot '" + printable(slot.name) + "' already");
  auto prepared = std::make_shared<const RowInitializer>(slot, initializer);
  slots.reserve(slots.size() + 1);
  initializers.reserve(slots.size() + 1);
  std::size_t done = 0;
  try {
    for (; done < stripes.size(); ++done) stripes[done]->add_slot(slot, *prepared, epoch);
  } catch (...) {
    while (done > 0) stripes[--done]->drop_last_slot();
    throw;
  }
  slots.push_back(std::move(slot));
  initializers.push_back(std::move(prepared));
  return slots.size() - 1;
}

void HashTable::Impl::require_all(std::span<const std::int64_t> ids) const {
  for (const std::int64_t id : ids) {
    if (map.stripe_of(id) == map.count()) map.refuse(id);
  }
}

std::uint64_t HashTable::Impl::erase_below(std::size_t slot, std::int64_t limit) {
  std::atomic<std::uint64_t> erased{0};
  for_stripes(true, [&](std::size_t i) {
    const std::unique_lock lock(stripes[i]->mutex());
    erased += stripes[i]->erase_below(slot, limit, epoch);
  });
  return erased;
}

}  // namespace weightstore
