// Records have a fixed size. Names and shapes are in two arenas.
//
// An entry of the arena of names is a LEB128 number, then the param id if there is one (8 bytes), then the name. The
// number is twice the length of the name, plus 1 if there is a param id.
//
// Dimensions are stored as LEB128, because a dimension then takes no more room than its digits in a header: a header of
// nothing but dimensions cannot make the table larger than itself.

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
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

constexpr std::size_t kMaxLeb128 = 10;
constexpr std::size_t kRecentKinds = 256;  // by the upper eight bits of a hash
constexpr std::size_t kFewTensors = 64;    // for which only the last kind is recent: a tiny file has no room for more
constexpr std::size_t kMaxSharedRank = 16;

// Byte is char or unsigned char.
template <class Byte>
void append_leb128(std::vector<Byte>& out, std::uint64_t n) {
  for (; n >= 0x80; n >>= 7) out.push_back(static_cast<Byte>(n | 0x80));
  out.push_back(static_cast<Byte>(n));
}

template <class Byte>
std::uint64_t read_leb128(const Byte*& p) {
  std::uint64_t n = 0;
  for (unsigned shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(*p++);
    n |= std::uint64_t{byte & 0x7Fu} << shift;
    if ((byte & 0x80) == 0) return n;
  }
}

std::size_t leb128_bytes(std::uint64_t n) { return (static_cast<std::size_t>(std::bit_width(n | 1)) + 6) / 7; }

// An array that grows doubles, beside the one it grows out of. Several elements may make it double more than once.
template <class Array>
std::size_t growth(const Array& array, std::size_t more) {
  const std::size_t needed = array.size() + more;
  if (needed <= array.capacity()) return 0;
  std::size_t grown = std::max<std::size_t>(1, array.capacity());
  while (grown < needed) grown *= 2;
  const std::size_t before = grown / 2 > array.capacity() ? grown / 2 : 0;
  return (grown + before) * sizeof(array[0]);
}

// Of the lookup, which is at most two thirds full.
std::size_t cell_count(std::size_t tensors) { return std::max<std::size_t>(16, tensors + tensors / 2 + 1); }

// The cell where the search for a name begins: the lower half of its hash, scaled to the number of cells.
std::size_t first_cell(std::uint64_t hash, std::size_t cells) {
  return static_cast<std::size_t>((hash & 0xFFFFFFFF) * cells >> 32);
}

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
  if (const unsigned element_bits = bits_of(dtype); element_bits != 0) {
    const auto bits = checked_mul(elements, element_bits);
    return !bits || *bits % 8 != 0 ? std::nullopt : std::optional(*bits / 8);
  }
  const auto block = block_of(dtype);
  // A row is whole blocks.
  if (!block || shape.empty() || shape.back() % block->elements != 0) return std::nullopt;
  return checked_mul(elements / block->elements, block->bytes);
}

std::string_view TensorTable::name(const Record& record) const {
  const char* p = names_.data() + record.name;
  const std::uint64_t number = read_leb128(p);
  return {p + ((number & 1) != 0 ? sizeof(std::uint64_t) : 0), static_cast<std::size_t>(number >> 1)};
}

std::optional<std::uint64_t> TensorTable::param_id(const Record& record) const {
  const char* p = names_.data() + record.name;
  if ((read_leb128(p) & 1) == 0) return std::nullopt;
  std::uint64_t id;
  std::memcpy(&id, p, sizeof(id));
  return id;
}

std::string_view TensorTable::name(std::size_t i) const { return name(records_[i]); }

Shape TensorTable::shape(std::size_t i) const {
  const Kind& kind = kind_of(i);
  Shape shape(kind.rank);
  const std::uint8_t* p = shapes_.data() + kind.shape_offset;
  for (std::uint64_t& dimension : shape) dimension = read_leb128(p);
  return shape;
}

TensorInfo TensorTable::operator[](std::size_t i) const {
  const Record& record = records_[i];
  const Kind& kind = kind_of(i);
  TensorInfo info;
  info.name = name(record);
  info.dtype = kind.dtype;
  info.shape = shape(i);
  info.source = kind.source;
  info.begin = record.begin;
  info.end = record.begin + kind.nbytes;
  info.param_id = param_id(record);
  if (kind.dtype == DType::kQFloat) info.quant = quants_[kind.quant];
  return info;
}

void TensorTable::expect_header(std::size_t bytes) {
  constexpr std::size_t kUsualBytes = 100;  // of the header for one tensor
  records_.reserve(bytes / kUsualBytes);
  names_.reserve(bytes);  // in which the names are
}

std::uint32_t TensorTable::add_source(std::shared_ptr<const ByteSource> source) {
  sources_.push_back(std::move(source));
  return static_cast<std::uint32_t>(sources_.size() - 1);
}

std::uint32_t TensorTable::add_name(std::string_view name, std::optional<std::uint64_t> param_id) {
  const auto offset = static_cast<std::uint32_t>(names_.size());
  append_leb128(names_, 2 * std::uint64_t{name.size()} + (param_id ? 1 : 0));
  if (param_id) {
    const auto* id = reinterpret_cast<const char*>(&*param_id);
    names_.insert(names_.end(), id, id + sizeof(*param_id));
  }
  names_.insert(names_.end(), name.begin(), name.end());
  return offset;
}

bool TensorTable::is_of_kind(const Row& tensor, std::uint32_t quant, const Kind& kind) const {
  if (kind.nbytes != tensor.end - tensor.begin || kind.dtype != tensor.dtype || kind.source != tensor.source ||
      kind.quant != quant || kind.rank != tensor.shape.size()) {
    return false;
  }
  const std::uint8_t* p = shapes_.data() + kind.shape_offset;
  return std::all_of(tensor.shape.begin(), tensor.shape.end(),
                     [&](std::uint64_t dimension) { return read_leb128(p) == dimension; });
}

// Finds the kind if one of the last tensors had it. To find it among all of them would take a lookup by hash, and
// little is lost if a kind is stored again. Tensors of many dimensions share no kind: going over a long shape takes
// time, and a small .pt file can have one shape in very many tensors. The memory that each of them takes is charged to
// the budget of the reader, and ends that.
std::uint32_t TensorTable::add_kind(const Row& tensor) {
  std::uint32_t quant = 0;
  if (tensor.dtype == DType::kQFloat) {
    // Most tensors of a file are quantized alike.
    if (quants_.empty() || !(*quants_.back() == *tensor.quant)) quants_.push_back(tensor.quant);
    quant = static_cast<std::uint32_t>(quants_.size() - 1);
  }
  const auto added = static_cast<std::uint32_t>(kinds_.size());
  if (records_.size() < kFewTensors) {
    if (added > 0 && tensor.shape.size() <= kMaxSharedRank && is_of_kind(tensor, quant, kinds_.back()))
      return added - 1;
  } else if (tensor.shape.size() <= kMaxSharedRank) {
    if (recent_kinds_.empty()) recent_kinds_.assign(kRecentKinds, kNone);
    constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15u;
    std::uint64_t hash = (tensor.source + (std::uint64_t{static_cast<std::uint8_t>(tensor.dtype)} << 32)) * kOdd;
    for (const std::uint64_t dimension : tensor.shape) hash = (hash ^ dimension) * kOdd;
    std::uint32_t& recent = recent_kinds_[hash >> 56];
    if (recent != kNone && is_of_kind(tensor, quant, kinds_[recent])) return recent;
    recent = added;
  }
  kinds_.push_back({tensor.end - tensor.begin, static_cast<std::uint32_t>(shapes_.size()),
                    static_cast<std::uint32_t>(tensor.shape.size()), tensor.source, quant, tensor.dtype});
  for (const std::uint64_t dimension : tensor.shape) append_leb128(shapes_, dimension);
  return added;
}

void TensorTable::require_room(std::string_view name, std::size_t rank) const {
  if (names_.size() + kMaxLeb128 + sizeof(std::uint64_t) + name.size() > kMaxArena ||
      shapes_.size() + kMaxLeb128 * rank > kMaxArena || records_.size() >= kMaxArena / 4) {
    throw Error(ErrorCode::kLimit, "more tensors than one table can hold").in_tensor(name);
  }
}

void TensorTable::add(const Row& tensor) {
  require_room(tensor.name, tensor.shape.size());
  const std::uint32_t kind = add_kind(tensor);
  records_.push_back({tensor.begin, add_name(tensor.name, tensor.param_id), kind});
}

void TensorTable::add_again(std::string_view name, std::size_t i) {
  require_room(name, 0);
  const Record first = records_[i];
  records_.push_back({first.begin, add_name(name, std::nullopt), first.kind});
}

std::size_t TensorTable::memory_bytes() const {
  return records_.capacity() * sizeof(Record) + names_.capacity() + kinds_.capacity() * sizeof(Kind) +
         shapes_.capacity() + recent_kinds_.capacity() * sizeof(recent_kinds_[0]) +
         cells_.capacity() * sizeof(cells_[0]);
}

std::size_t TensorTable::bytes_to_add(const Row& tensor) const {
  std::size_t shape = 0;
  for (const std::uint64_t dimension : tensor.shape) shape += leb128_bytes(dimension);
  return bytes_to_add_again(tensor.name) + growth(kinds_, 1) + growth(shapes_, shape) +
         (recent_kinds_.empty() && records_.size() >= kFewTensors ? kRecentKinds * sizeof(recent_kinds_[0]) : 0);
}

std::size_t TensorTable::bytes_to_add_again(std::string_view name) const {
  return growth(records_, 1) + growth(names_, kMaxLeb128 + sizeof(std::uint64_t) + name.size());
}

std::size_t TensorTable::bytes_to_finish() const {
  return cell_count(records_.size()) * sizeof(cells_[0]) + records_.size() / 2 * sizeof(Record);  // for sorting
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
  const std::uint32_t numbers = (std::uint32_t{1} << number_bits_) - 1;
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  for (std::size_t cell = first_cell(hash, cells_.size());;) {
    const std::uint32_t found = cells_[cell];
    if (found == kNone) return cell;
    if (((found ^ tag) & ~numbers) == 0 && name(found & numbers) == wanted) return cell;
    if (++cell == cells_.size()) cell = 0;
  }
}

std::optional<std::size_t> TensorTable::find(std::string_view wanted) const {
  if (cells_.empty()) return std::nullopt;
  const std::uint32_t found = cells_[cell_of(wanted, hash_name(wanted, hash_seed_))];
  if (found == kNone) return std::nullopt;
  return found & ((std::uint32_t{1} << number_bits_) - 1);
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
  const auto before = [this](const Record& a, const Record& b) {
    const Kind& of_a = kinds_[a.kind];
    const Kind& of_b = kinds_[b.kind];
    if (of_a.source != of_b.source) return of_a.source < of_b.source;
    return a.begin != b.begin ? a.begin < b.begin : of_a.nbytes < of_b.nbytes;
  };
  if (!std::is_sorted(records_.begin(), records_.end(), before)) {
    std::stable_sort(records_.begin(), records_.end(), before);
  }
  recent_kinds_ = std::vector<std::uint32_t>();
  build_lookup();
}

void TensorTable::build_lookup() {
  // Addresses and time are enough of a secret: an attacker writes the file before this process exists.
  hash_seed_ = reinterpret_cast<std::uintptr_t>(records_.data()) * 0x9E3779B97F4A7C15u ^
               static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  const std::size_t capacity = cell_count(records_.size());
  cells_.assign(capacity, kNone);
  // So many bits that no number has all of them set: a cell with a tensor is never kNone.
  number_bits_ = static_cast<unsigned>(std::bit_width(records_.size()));
  const std::uint32_t numbers = (std::uint32_t{1} << number_bits_) - 1;
  // Each cell is a cache miss; asking for a batch of them before the first is needed lets the misses overlap.
  std::array<std::uint64_t, 32> hashes;
  for (std::size_t first = 0; first < records_.size(); first += hashes.size()) {
    const std::size_t count = std::min(hashes.size(), records_.size() - first);
    for (std::size_t k = 0; k < count; ++k) {
      hashes[k] = hash_name(name(first + k), hash_seed_);
      __builtin_prefetch(&cells_[first_cell(hashes[k], capacity)], 1);
    }
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t i = first + k;
      std::uint32_t& cell = cells_[cell_of(name(i), hashes[k])];
      if (cell != kNone) throw Error(ErrorCode::kCorrupt, "the name is given twice").in_tensor(name(i));
      cell = (static_cast<std::uint32_t>(hashes[k] >> 32) & ~numbers) | static_cast<std::uint32_t>(i);
    }
  }
}

std::vector<std::uint32_t> TensorTable::by_name() const {
  return order_by_name(size(), [this](std::uint32_t i) { return name(i); });
}

}  // namespace weightstore
