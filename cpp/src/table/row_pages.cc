#include "table/row_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

// Pages are allocated in slabs of several, so that large columns lie on huge pages. The first slab of a column is a
// single page, and slabs grow with the column, so that small tables stay small. A page that is released gives its
// memory back to the system even while its slab is in use.

namespace weightstore::table {
namespace {

constexpr std::size_t kMaxPageBytes = std::size_t{256} << 10;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kMaxSlabBytes = std::size_t{64} << 20;

constexpr std::size_t round_up(std::size_t n, std::size_t alignment) { return (n + alignment - 1) & ~(alignment - 1); }

// Aligned to pages of the system, so that a page can give back its memory without touching another one.
std::size_t system_page() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

// The number of pages of the next slab: as many as the column has, until that is a huge page; then an eighth of what it
// has. Slabs are mappings, and a process can have only some ten thousand of them. Only the used part of a slab takes
// memory.
std::uint64_t slab_pages(std::size_t page_bytes, std::uint64_t pages, std::uint64_t expected_pages) {
  const std::uint64_t in_huge_page = std::max<std::size_t>(kHugePage / page_bytes, 1);
  const std::uint64_t most = std::max<std::size_t>(kMaxSlabBytes / page_bytes, 1);
  const std::uint64_t doubled = std::clamp<std::uint64_t>(std::max(pages, expected_pages), 1, in_huge_page);
  return std::clamp(pages / 8, doubled, std::max(doubled, most));
}

}  // namespace

PageRef::PageRef(MutableBytes bytes, std::shared_ptr<void> slab) : page_(new Page) {
  page_->bytes = bytes;
  page_->slab = std::move(slab);
}

PageRef::~PageRef() {
  if (page_ == nullptr || page_->holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (page_->slab.use_count() > 1) {
    ::madvise(page_->bytes.data(), round_up(page_->bytes.size(), system_page()), MADV_DONTNEED);
  }
  delete page_;
}

PageShape::PageShape(std::uint64_t row_bytes, std::uint32_t page_rows)
    : row_bytes_(row_bytes), shift_(static_cast<unsigned>(std::countr_zero(page_rows))) {
  while (shift_ > 0 && page_bytes() > kMaxPageBytes) --shift_;
}

void Column::add_pages(std::uint64_t rows, std::uint64_t expected) {
  while (capacity_ < rows) {
    PageRef page = new_page(expected / shape_.page_rows());
    data_.resize(pages_.size());  // has one element too many if the last push failed
    data_.push_back(page.data());
    pages_.push_back(std::move(page));
    capacity_ += shape_.page_rows();
  }
}

void Column::unshare(std::size_t page) {
  PageRef copy = new_page(0);
  // Copies only existing rows: the untouched rest of a page takes no memory.
  const std::uint64_t rows = rows_ - std::uint64_t{page} * shape_.page_rows();
  std::memcpy(copy.data(), data_[page], std::min<std::uint64_t>(rows, shape_.page_rows()) * shape_.row_bytes());
  data_[page] = copy.data();
  pages_[page] = std::move(copy);
}

PageRef Column::new_page(std::uint64_t expected_pages) {
  const std::size_t bytes = round_up(shape_.page_bytes(), system_page());
  if (slab_.bytes.empty()) {
    slab_ = io::allocate_bulk(bytes * slab_pages(bytes, pages_.size(), expected_pages));
    huge_slab_ = slab_.bytes.size() >= kHugePage;
  }
  // One huge page at a time, because a slab may never be used up.
  const auto begin = reinterpret_cast<std::uintptr_t>(slab_.bytes.data());
  if (huge_slab_ && round_up(begin, kHugePage) < begin + bytes) {
    fresh_->touch(slab_.bytes.first(std::min(slab_.bytes.size(), kHugePage)));
  }
  PageRef page(slab_.bytes.first(shape_.page_bytes()), slab_.owner);
  slab_.bytes = slab_.bytes.subspan(bytes);
  if (slab_.bytes.empty()) slab_ = {};
  return page;
}

}  // namespace weightstore::table
