#pragma once

// How much memory the reader of one file may hold at a time, in proportion to the size of that file.
//
// Everything that a reader allocates because of what a file says is charged here before it is allocated, and given back
// when it is freed. The budget counts bytes, not values or names, so that it holds whatever the file is made of, and
// compressed parts count as what they inflate to.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace weightstore {

// Not thread-safe: one thread reads a file's description.
class MemoryBudget {
 public:
  static constexpr std::uint64_t kPerByte = 24;
  // What the smallest files need beyond that.
  static constexpr std::uint64_t kConstant = 16u << 10;

  explicit MemoryBudget(std::uint64_t file_bytes, std::uint64_t constant = kConstant);

  // Throws Error(kLimit) with both numbers, and charges nothing, when `bytes` more are not allowed.
  void take(std::uint64_t bytes) {
    require(bytes);
    used_ += bytes;
  }
  // The same without charging anything.
  void require(std::uint64_t bytes) const {
    if (bytes > allowed_ - used_) refuse(bytes);
  }
  void give_back(std::uint64_t bytes) noexcept { used_ -= bytes; }

  std::uint64_t used() const { return used_; }

  // The charge for a block of this size on the heap, with what the allocator adds.
  static std::uint64_t heap_bytes(std::uint64_t bytes) { return std::max<std::uint64_t>(bytes + 16, 32); }

 private:
  [[noreturn]] void refuse(std::uint64_t bytes) const;

  const std::uint64_t file_bytes_;
  const std::uint64_t allowed_;
  std::uint64_t used_ = 0;
};

// Memory that is charged for the time of a scope, or until the end of the budget after keep().
class MemoryLease {
 public:
  MemoryLease(MemoryBudget& budget, std::uint64_t bytes) : budget_(budget), bytes_(bytes) { budget.take(bytes); }
  ~MemoryLease() { budget_.give_back(bytes_); }
  MemoryLease(const MemoryLease&) = delete;
  MemoryLease& operator=(const MemoryLease&) = delete;
  void keep() { bytes_ = 0; }

 private:
  MemoryBudget& budget_;
  std::uint64_t bytes_;
};

// An allocator that charges a budget, which must outlive the container.
template <class T>
class Charged {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  Charged(MemoryBudget& budget) : budget_(&budget) {}
  template <class U>
  Charged(const Charged<U>& other) : budget_(other.budget_) {}

  T* allocate(std::size_t count) {
    if (count > SIZE_MAX / 2 / sizeof(T)) throw std::bad_alloc();
    MemoryLease lease(*budget_, MemoryBudget::heap_bytes(count * sizeof(T)));
    T* memory = std::allocator<T>().allocate(count);
    lease.keep();
    return memory;
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    std::allocator<T>().deallocate(memory, count);
    budget_->give_back(MemoryBudget::heap_bytes(count * sizeof(T)));
  }

  template <class U>
  bool operator==(const Charged<U>& other) const {
    return budget_ == other.budget_;
  }

 private:
  template <class U>
  friend class Charged;
  MemoryBudget* budget_;
};

template <class T>
using ChargedVector = std::vector<T, Charged<T>>;
using ChargedString = std::basic_string<char, std::char_traits<char>, Charged<char>>;
template <class K, class V>
using ChargedMap = std::map<K, V, std::less<>, Charged<std::pair<const K, V>>>;
template <class T>
using ChargedSet = std::set<T, std::less<>, Charged<T>>;

}  // namespace weightstore
