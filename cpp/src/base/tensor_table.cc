// Records are fixed-size; names stay in the header's text, and shapes live in an arena. Dimensions are stored as LEB128
// because a dimension then takes no more room than its digits in the header, so that a header of nothing but dimensions
// cannot blow us up.

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <limits>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/name_hash.h"
#include "base/name_order.h"
#include "weightstore/error.h"
#include "weightstore/tensor.h"

namespace weightstore {
namespace {

constexpr std::uint64_t kMaxArena = std::numeric_limits<std::uint32_t>::max();

void append_leb128(std::vector<std::uint8_t>& out, std::uint64_t n) {
  while (n >= 0x80) {
    out.push_back(static_cast<std::uint8_t>(n | 0x80));
    n >>= 7;
  }
  out.push_back(static_cast<std::uint8_t>(n));
}

std::uint64_t read_leb128(const std::uint8_t*& p) {
  std::uint64_t n = 0;
  for (unsigned shift = 0;; shift += 7) {
    const std::uint8_t byte = *p++;
    n |= std::uint64_t{byte & 0x7Fu} << shift;
    if ((byte & 0x80) == 0) return n;
  }
}

std::size_t leb128_bytes(std::uint64_t n) { return (static_cast<std::size_t>(std::bit_width(n | 1)) + 6) / 7; }

// Of the lookup: a power of two, at most half full.
std::size_t cell_count(std::size_t tensors) { return std::bit_ceil(std::max<std::size_t>(16, 2 * tensors)); }

// How many edits turn `a` into `b`, at most `limit` + 1.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > limit) return limit + 1;
  std::vector<std::size_t> row(a.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t j = 1; j <= b.size(); ++j) {
    std::size_t diagonal = std::exchange(row[0], j);
    for (std::size_t i = 1; i <= a.size(); ++i) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[i];
      row[i] = std::min({substituted, row[i] + 1, row[i - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::uint64_t> contiguous_bytes(DType dtype, std::span<const std::uint64_t> shape) {
  std::uint64_t elements = 1;
  for (const std::uint64_t dimension : shape) {
    const auto product = checked_mul(elements, dimension);
    if (!product) return std::nullopt;
    elements = *product;
  }
  if (const auto block = block_of(dtype)) {
    // A row is whole blocks.
    if (shape.empty() || shape.back() % block->elements != 0) return std::nullopt;
    return checked_mul(elements / block->elements, block->bytes);
  }
  const auto bits = checked_mul(elements, bits_of(dtype));
  if (!bits || *bits % 8 != 0 || bits_of(dtype) == 0) return std::nullopt;
  return *bits / 8;
}

std::string_view TensorTable::name(const Record& record) const {
  const char* begin = record.name_offset < text_size_ ? text_.get() + record.name_offset
                                                      : names_.data() + (record.name_offset - text_size_);
  return {begin, record.name_length};
}

std::string_view TensorTable::name(std::size_t i) const { return name(records_[i]); }

Shape TensorTable::shape(std::size_t i) const {
  const Record& record = records_[i];
  Shape shape(record.rank);
  const std::uint8_t* p = shapes_.data() + record.shape_offset;
  for (std::uint64_t& dimension : shape) dimension = read_leb128(p);
  return shape;
}

TensorInfo TensorTable::operator[](std::size_t i) const {
  const Record& record = records_[i];
  TensorInfo info;
  info.name = name(record);
  info.dtype = record.dtype;
  info.shape = shape(i);
  info.source = record.source;
  info.begin = record.begin;
  info.end = record.end;
  if (record.has_param_id) info.param_id = record.param_id;
  if (record.dtype == DType::kQFloat) info.quant = quants_[record.quant];
  return info;
}

void TensorTable::keep_text(std::shared_ptr<const char[]> text, std::size_t size) {
  text_ = std::move(text);
  text_size_ = size;
}

std::uint32_t TensorTable::add_source(std::shared_ptr<const ByteSource> source) {
  sources_.push_back(std::move(source));
  return static_cast<std::uint32_t>(sources_.size() - 1);
}

std::uint32_t TensorTable::place(std::string_view name) {
  // As numbers, because pointers into different objects have no order.
  const auto begin = reinterpret_cast<std::uintptr_t>(text_.get());
  const auto at = reinterpret_cast<std::uintptr_t>(name.data());
  if (at >= begin && at - begin < text_size_) return static_cast<std::uint32_t>(at - begin);
  const std::size_t offset = text_size_ + names_.size();
  names_ += name;
  return static_cast<std::uint32_t>(offset);
}

void TensorTable::add(const Row& tensor) {
  if (text_size_ + names_.size() + tensor.name.size() > kMaxArena ||
      shapes_.size() + 10 * tensor.shape.size() > kMaxArena || records_.size() >= kMaxArena / 4) {
    throw Error(ErrorCode::kLimit, "more tensors than one table can hold").in_tensor(tensor.name);
  }
  // A tensor usually takes a hundred bytes of header. Pages that are not needed are never touched.
  if (records_.empty() && records_.capacity() == 0) records_.reserve(text_size_ / 100);
  Record record;
  record.begin = tensor.begin;
  record.end = tensor.end;
  record.param_id = tensor.param_id.value_or(0);
  record.name_offset = place(tensor.name);
  record.name_length = static_cast<std::uint32_t>(tensor.name.size());
  record.shape_offset = static_cast<std::uint32_t>(shapes_.size());
  record.rank = static_cast<std::uint32_t>(tensor.shape.size());
  record.source = tensor.source;
  record.quant = 0;
  record.dtype = tensor.dtype;
  record.has_param_id = tensor.param_id.has_value();
  for (const std::uint64_t dimension : tensor.shape) append_leb128(shapes_, dimension);
  if (tensor.dtype == DType::kQFloat) {
    // Most tensors of a file are quantized alike.
    if (quants_.empty() || !(*quants_.back() == *tensor.quant)) quants_.push_back(tensor.quant);
    record.quant = static_cast<std::uint32_t>(quants_.size() - 1);
  }
  records_.push_back(record);
}

std::size_t TensorTable::memory_bytes() const {
  return records_.capacity() * sizeof(Record) + names_.capacity() + shapes_.capacity() +
         cells_.capacity() * sizeof(Cell);
}

std::size_t TensorTable::bytes_to_add(const Row& tensor) const {
  // An array that grows doubles, beside the one it grows out of.
  std::size_t bytes = 0;
  if (records_.size() == records_.capacity()) bytes += std::max<std::size_t>(1, 2 * records_.size()) * sizeof(Record);
  const std::size_t names = names_.size() + tensor.name.size();
  if (names > names_.capacity()) bytes += std::max(2 * names_.capacity(), names);
  std::size_t shapes = shapes_.size();
  for (const std::uint64_t dimension : tensor.shape) shapes += leb128_bytes(dimension);
  if (shapes > shapes_.capacity()) {
    // Byte by byte, so that it may double more than once.
    std::size_t grown = std::max<std::size_t>(1, shapes_.capacity());
    while (grown < shapes) grown *= 2;
    bytes += grown + (grown / 2 > shapes_.capacity() ? grown / 2 : 0);
  }
  return bytes;
}

std::size_t TensorTable::bytes_to_finish() const {
  return cell_count(records_.size()) * sizeof(Cell) + records_.size() / 2 * sizeof(Record);  // for sorting
}

void TensorTable::append(const TensorTable& other) {
  const auto first = static_cast<std::uint32_t>(sources_.size());
  for (const auto& source : other.sources_) sources_.push_back(source);
  for (std::size_t i = 0; i < other.size(); ++i) {
    const TensorInfo info = other[i];
    add({info.name, info.dtype, info.shape, first + info.source, info.begin, info.end, info.param_id, info.quant});
  }
  left_out_.insert(left_out_.end(), other.left_out_.begin(), other.left_out_.end());
}

void TensorTable::set_metadata(TextMap metadata) {
  metadata_ = std::move(metadata);
  has_metadata_ = true;
}

std::size_t TensorTable::cell_of(std::string_view wanted, std::uint64_t hash) const {
  const std::size_t mask = cells_.size() - 1;
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  for (std::size_t cell = hash & mask;; cell = (cell + 1) & mask) {
    if (cells_[cell].tensor == kFree) return cell;
    if (cells_[cell].tag == tag && name(cells_[cell].tensor) == wanted) return cell;
  }
}

std::optional<std::size_t> TensorTable::find(std::string_view wanted) const {
  if (cells_.empty()) return std::nullopt;
  const Cell& cell = cells_[cell_of(wanted, hash_name(wanted, hash_seed_))];
  if (cell.tensor == kFree) return std::nullopt;
  return cell.tensor;
}

std::size_t TensorTable::at(std::string_view wanted) const {
  if (const auto found = find(wanted)) return *found;
  for (const LeftOut& value : left_out_) {
    if (value.name != wanted) continue;
    throw Error(ErrorCode::kUnsupported, "it was left out: " + value.reason + " (" + printable(value.type) + ")")
        .in_tensor(wanted);
  }
  std::string message = "no such tensor among " + std::to_string(size());
  const std::size_t limit = std::max<std::size_t>(2, wanted.size() / 4);
  std::size_t best = limit + 1;
  std::size_t nearest = size();
  // A courtesy that must not cost more than the lookup deserves: about this many comparisons of characters.
  std::uint64_t budget = 4'000'000;
  if (wanted.size() <= 256) {
    for (std::size_t i = 0; i < size(); ++i) {
      const std::uint64_t cost = 1 + std::uint64_t{wanted.size()} * name(i).size();
      if (cost > budget) break;
      budget -= cost;
      const std::size_t distance = edit_distance(wanted, name(i), limit);
      if (distance < best) {
        best = distance;
        nearest = i;
      }
    }
  }
  if (nearest < size()) message += "; did you mean '" + printable(name(nearest)) + "'?";
  throw Error(ErrorCode::kNotFound, std::move(message)).in_tensor(wanted);
}

void TensorTable::finish() {
  const auto before = [](const Record& a, const Record& b) {
    if (a.source != b.source) return a.source < b.source;
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  };
  if (!std::is_sorted(records_.begin(), records_.end(), before)) {
    std::stable_sort(records_.begin(), records_.end(), before);
  }
  build_lookup();
}

void TensorTable::build_lookup() {
  // Addresses and time are enough of a secret: an attacker writes the file before this process exists.
  hash_seed_ = reinterpret_cast<std::uintptr_t>(records_.data()) * 0x9E3779B97F4A7C15u ^
               static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  const std::size_t capacity = cell_count(records_.size());
  cells_.assign(capacity, {});
  // Each cell is a cache miss; asking for a batch of them before the first is needed lets the misses overlap.
  std::array<std::uint64_t, 32> hashes;
  for (std::size_t first = 0; first < records_.size(); first += hashes.size()) {
    const std::size_t count = std::min(hashes.size(), records_.size() - first);
    for (std::size_t k = 0; k < count; ++k) {
      hashes[k] = hash_name(name(first + k), hash_seed_);
      __builtin_prefetch(&cells_[hashes[k] & (capacity - 1)], 1);
    }
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t i = first + k;
      Cell& cell = cells_[cell_of(name(i), hashes[k])];
      if (cell.tensor != kFree) throw Error(ErrorCode::kCorrupt, "the name is given twice").in_tensor(name(i));
      cell = {static_cast<std::uint32_t>(hashes[k] >> 32), static_cast<std::uint32_t>(i)};
    }
  }
}

std::vector<std::uint32_t> TensorTable::by_name() const {
  return order_by_name(size(), [this](std::uint32_t i) { return name(i); });
}

}  // namespace weightstore
