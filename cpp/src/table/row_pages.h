#pragma once

// Rows of one slot of one stripe, in pages that snapshots can pin.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "io/huge_buffer.h"
#include "weightstore/byte_source.h"

namespace weightstore::table {

// A page and the count of those who hold it: its column, and any number of snapshots. A column writes only to pages
// that nobody else holds; since holders are added by the column alone (under the table's lock), a count of one stays.
class PageRef {
 public:
  PageRef() = default;
  // `slab` is the memory that `bytes` are a part of.
  PageRef(MutableBytes bytes, std::shared_ptr<void> slab);
  PageRef(const PageRef& other) : page_(other.page_) {
    if (page_ != nullptr) page_->holders.fetch_add(1, std::memory_order_relaxed);
  }
  PageRef(PageRef&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
  PageRef& operator=(PageRef other) noexcept {
    std::swap(page_, other.page_);
    return *this;
  }
  ~PageRef();

  std::byte* data() const { return page_->bytes.data(); }
  // Acquires what others did before they let go.
  bool is_shared() const { return page_->holders.load(std::memory_order_acquire) != 1; }

 private:
  struct Page {
    std::atomic<std::uint32_t> holders{1};
    MutableBytes bytes;
    std::shared_ptr<void> slab;
  };
  Page* page_ = nullptr;
};

// Where the rows of a column lie. Pages have a power of two of rows, fewer than asked for when rows are long.
class PageShape {
 public:
  PageShape(std::uint64_t row_bytes, std::uint32_t page_rows);

  std::uint64_t row_bytes() const { return row_bytes_; }
  std::size_t page_bytes() const { return row_bytes_ << shift_; }
  std::uint32_t page_rows() const { return std::uint32_t{1} << shift_; }
  std::size_t page_of(std::uint32_t row) const { return row >> shift_; }
  std::uint32_t row_in_page(std::uint32_t row) const { return row & (page_rows() - 1); }

 private:
  std::uint64_t row_bytes_;
  unsigned shift_;
};

// Thread-compatible: the stripe's lock guards it.
class Column {
 public:
  // `fresh` touches the memory of large columns; it outlives them.
  Column(std::uint64_t row_bytes, std::uint32_t page_rows, io::FreshPages& fresh)
      : shape_(row_bytes, page_rows), fresh_(&fresh) {}

  const PageShape& shape() const { return shape_; }

  const std::byte* row(std::uint32_t row) const {
    return data_[shape_.page_of(row)] + shape_.row_in_page(row) * shape_.row_bytes();
  }

  // To be written to at once: the address is that of another row's page as soon as a snapshot is taken.
  std::byte* writable_row(std::uint32_t row) {
    const std::size_t page = shape_.page_of(row);
    if (pages_[page].is_shared()) unshare(page);
    return data_[page] + shape_.row_in_page(row) * shape_.row_bytes();
  }

  // Makes pages for rows below `rows`. With `expected` rows to come in all, memory is taken in larger parts.
  void grow_to(std::uint32_t rows, std::uint64_t expected);

  const std::vector<PageRef>& pages() const { return pages_; }

 private:
  void unshare(std::size_t page);
  PageRef new_page(std::uint64_t expected_pages);

  PageShape shape_;
  io::FreshPages* fresh_;
  std::vector<PageRef> pages_;
  std::vector<std::byte*> data_;  // of pages_, one step nearer
  SharedMutableBytes slab_;       // what is left of the last one
  bool huge_slab_ = false;        // it lies on huge pages
  std::uint32_t rows_ = 0;        // that there are pages for; the last page may have room for more
};

}  // namespace weightstore::table
