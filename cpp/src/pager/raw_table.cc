#include "pager/raw_table.h"

#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"

namespace weightstore::pager {
namespace {

constexpr std::size_t kListed = 16;  // entries that a message names beside the first

std::string describe(const NamedEntry& named) {
  return "'" + printable(named.name) + "' (" + std::to_string(named.entry.size) + " bytes at offset " +
         std::to_string(named.entry.offset) + ")";
}

// `bad` is not empty.
OffloadEof beyond_the_end(std::span<const NamedEntry* const> bad, std::uint64_t source_size) {
  std::string more = "; the source has " + std::to_string(source_size) + " bytes";
  for (std::size_t i = 1; i < bad.size() && i <= kListed; ++i) {
    more += (i == 1 ? ". These entries do not fit either: " : ", ") + describe(*bad[i]);
  }
  if (bad.size() > kListed + 1) more += " and " + std::to_string(bad.size() - kListed - 1) + " more";
  const TensorEntry& first = bad[0]->entry;
  OffloadEof error(first.offset, first.size, first.offset < source_size ? source_size - first.offset : 0, more);
  error.in_tensor(bad[0]->name);
  return error;
}

}  // namespace

TensorTable make_raw_table(std::shared_ptr<const ByteSource> source, std::span<const NamedEntry> entries) {
  const std::uint64_t size = source->size();
  const std::string source_name = source->name();
  TensorTable table;
  table.add_source(std::move(source));
  std::vector<const NamedEntry*> bad;
  for (const NamedEntry& named : entries) {
    const auto end = checked_add(named.entry.offset, named.entry.size);
    if (!end || *end > size) {
      bad.push_back(&named);
      continue;
    }
    const std::uint64_t shape[] = {named.entry.size};
    table.add({named.name, DType::kU8, shape, 0, named.entry.offset, *end, std::nullopt, nullptr});
  }
  if (!bad.empty()) {
    OffloadEof error = beyond_the_end(bad, size);
    error.in_file(source_name);
    throw error;
  }
  try {
    table.finish();
  } catch (const Error& error) {
    throw Error(ErrorCode::kInvalidArgument, error.message()).in_tensor(error.tensor()).in_file(source_name);
  }
  return table;
}

}  // namespace weightstore::pager
