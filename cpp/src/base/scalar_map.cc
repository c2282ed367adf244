#include <limits>

#include "base/name_order.h"
#include "weightstore/error.h"
#include "weightstore/tensor.h"

namespace weightstore {

void ScalarMap::add(std::string_view name, Scalar value) {
  if (std::uint64_t{names_.size()} + name.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::kLimit, "scalars with more than 4 GiB of names");
  }
  entries_.push_back({static_cast<std::uint32_t>(names_.size()), static_cast<std::uint32_t>(name.size()), value});
  names_ += name;
}

std::string_view ScalarMap::name(std::size_t i) const {
  return std::string_view(names_).substr(entries_[i].offset, entries_[i].length);
}

const Scalar* ScalarMap::find(std::string_view wanted) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (name(i) == wanted) return &entries_[i].value;
  }
  return nullptr;
}

void ScalarMap::sort() {
  const std::string_view names = names_;
  sort_by_name(entries_, [names](const Entry& entry) { return names.substr(entry.offset, entry.length); });
}

std::size_t ScalarMap::duplicate() const {
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    if (name(i) == name(i - 1)) return i;
  }
  return entries_.size();
}

}  // namespace weightstore
