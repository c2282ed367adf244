#pragma once

// The rows of one slot in one stripe, in pages that snapshots can pin.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "io/huge_buffer.h"
#include "weightstore/byte_source.h"

namespace weightstore::table {

// A reference to a page. The page counts its holders: its column, and any number of snapshots. A column writes only to
// pages that no snapshot holds. Only the column adds holders, under the lock of the table, so that a count of one
// cannot grow meanwhile.
class PageRef {
 public:
  PageRef() = default;
  // `slab` owns the memory of `bytes`.
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
  // The load acquires the reads of holders that have released the page.
  bool is_shared() const { return page_->holders.load(std::memory_order_acquire) != 1; }

 private:
  struct Page {
    std::atomic<std::uint32_t> holders{1};
    MutableBytes bytes;
    std::shared_ptr<void> slab;
  };
  Page* page_ = nullptr;
};

// Where the rows of a column lie. The number of rows of a page is a power of two; with long rows it is smaller than
// `page_rows`.
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

// Thread-compatible: the lock of the stripe guards it.
class Column {
 public:
  // `fresh` touches the memory of large columns, and outlives them.
  Column(std::uint64_t row_bytes, std::uint32_t page_rows, io::FreshPages& fresh)
      : shape_(row_bytes, page_rows), fresh_(&fresh) {}

  const PageShape& shape() const { return shape_; }

  const std::byte* row(std::uint32_t row) const {
    return data_[shape_.page_of(row)] + shape_.row_in_page(row) * shape_.row_bytes();
  }

  // The address is valid only until the next snapshot: a later write would change a page of the snapshot.
  std::byte* writable_row(std::uint32_t row) {
    const std::size_t page = shape_.page_of(row);
    if (pages_[page].is_shared()) unshare(page);
    return data_[page] + shape_.row_in_page(row) * shape_.row_bytes();
  }

  // Makes pages for all rows below `rows`. `expected` is how many rows will come in all: with more of them, memory is
  // allocated in larger slabs. Called for every new row, so the usual case is a comparison.
  void grow_to(std::uint32_t rows, std::uint64_t expected) {
    if (rows > capacity_) add_pages(rows, expected);
    if (rows > rows_) rows_ = rows;
  }

  const std::vector<PageRef>& pages() const { return pages_; }

 private:
  void add_pages(std::uint64_t rows, std::uint64_t expected);
  void unshare(std::size_t page);
  PageRef new_page(std::uint64_t expected_pages);

  PageShape shape_;
  io::FreshPages* fresh_;
  std::vector<PageRef> pages_;
  std::vector<std::byte*> data_;  // the data of pages_, to save an indirection
  SharedMutableBytes slab_;       // the unused rest of the last slab
  bool huge_slab_ = false;        // slab_ lies on huge pages
  std::uint64_t capacity_ = 0;    // rows that the pages have room for
  std::uint32_t rows_ = 0;        // rows in use; the last page may have room for more
};

}  // namespace weightstore::table
