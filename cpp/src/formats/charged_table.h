#pragma once

// A table of tensors whose memory counts against the budget of its file.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "codec/memory_budget.h"
#include "weightstore/tensor.h"

namespace weightstore {

class ChargedTable {
 public:
  // `memory` outlives this object. Source 0 is the file.
  ChargedTable(std::shared_ptr<const ByteSource> file, MemoryBudget& memory) : memory_(memory) {
    table_.add_source(std::move(file));
  }

  // As the functions of TensorTable. They throw Error(kLimit) when the budget is used up. The caller charges the budget
  // with the source itself.
  std::uint32_t add_source(std::shared_ptr<const ByteSource> source) { return table_.add_source(std::move(source)); }

  void add(const TensorTable::Row& tensor) {
    charge(tensor.name, table_.bytes_to_add(tensor), [&] { table_.add(tensor); });
  }
  void add_again(std::string_view name, std::size_t i) {
    charge(name, table_.bytes_to_add_again(name), [&] { table_.add_again(name, i); });
  }
  std::size_t size() const { return table_.size(); }

  TensorTable finish() {
    // A name that comes twice is in the error, and in a copy of the error.
    const MemoryLease lease(memory_, table_.bytes_to_finish() + 2 * longest_name_);
    table_.finish();
    return std::move(table_);
  }

 private:
  // Runs `add`, which adds a tensor and allocates at most `growth` bytes.
  template <class Add>
  void charge(std::string_view name, std::uint64_t growth, Add add) {
    longest_name_ = std::max<std::uint64_t>(longest_name_, name.size());
    if (growth == 0) return add();
    MemoryLease lease(memory_, growth);
    add();
    lease.keep();
    // Arrays that moved have left their old places.
    const std::uint64_t now = table_.memory_bytes();
    memory_.give_back(charged_ + growth - now);
    charged_ = now;
  }

  MemoryBudget& memory_;
  TensorTable table_;
  std::uint64_t charged_ = 0;  // for the table
  std::uint64_t longest_name_ = 0;
};

}  // namespace weightstore
