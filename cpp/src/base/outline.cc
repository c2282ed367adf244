#include "weightstore/outline.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>
#include <unordered_map>

#include "base/checked.h"
#include "base/name_hash.h"

namespace weightstore {
namespace {

// Beyond it names push the other columns aside: one long name must not make a million lines long.
constexpr std::size_t kWidestName = 120;

std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) { return a + std::min(b, ~a); }

std::uint64_t parameters_of(const Shape& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::uint64_t product = 1;
  for (const std::uint64_t size : shape) {
    const auto next = checked_mul(product, size);
    if (!next) return std::numeric_limits<std::uint64_t>::max();
    product = *next;
  }
  return product;
}

void add(const Totals& tensor, Totals& totals) {
  totals.tensors += tensor.tensors;
  totals.parameters = saturating_add(totals.parameters, tensor.parameters);
  totals.nbytes = saturating_add(totals.nbytes, tensor.nbytes);
}

// The nodes of a table. Modules are found again by their path; every tensor is a node of its own.
class Nodes {
 public:
  Nodes() : modules_(0, Hash{secret()}) {}

  void add_tensor(std::string_view path, std::size_t depth, const Totals& totals, DType dtype) {
    nodes_.push_back({path, true, depth, totals, bit_of(dtype)});
  }

  void add_to_module(std::string_view path, std::size_t depth, const Totals& totals, DType dtype) {
    const auto [at, is_new] = modules_.try_emplace(path, nodes_.size());
    if (is_new) nodes_.push_back({path, false, depth, {}, 0});
    OutlineNode& node = nodes_[at->second];
    add(totals, node.totals);
    node.dtypes |= bit_of(dtype);
  }

  std::vector<OutlineNode> sorted() && {
    std::sort(nodes_.begin(), nodes_.end(), [](const OutlineNode& a, const OutlineNode& b) {
      return std::tuple(a.path, !a.is_tensor) < std::tuple(b.path, !b.is_tensor);
    });
    return std::move(nodes_);
  }

 private:
  static std::uint64_t bit_of(DType dtype) { return std::uint64_t{1} << static_cast<unsigned>(dtype); }

  std::uint64_t secret() const {
    return reinterpret_cast<std::uintptr_t>(this) ^
           static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }

  // With a secret seed, as in NameSet: the author of a file cannot choose names that collide.
  struct Hash {
    std::uint64_t seed;
    std::size_t operator()(std::string_view text) const { return static_cast<std::size_t>(hash_name(text, seed)); }
  };
  std::unordered_map<std::string_view, std::size_t, Hash> modules_;  // to their numbers in nodes_
  std::vector<OutlineNode> nodes_;
};

void add_nodes(std::string_view name, std::size_t depth, const Totals& totals, DType dtype, Nodes& nodes) {
  std::size_t parts = 1;
  for (std::size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1), ++parts) {
    if (parts > depth) return;
    nodes.add_to_module(name.substr(0, dot), parts, totals, dtype);
  }
  if (parts <= depth) nodes.add_tensor(name, parts, totals, dtype);
}

std::vector<std::size_t> largest_of(const TensorTable& table, std::size_t count) {
  std::vector<std::size_t> numbers(table.size());
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  count = std::min(count, numbers.size());
  const auto end = numbers.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(numbers.begin(), end, numbers.end(), [&](std::size_t a, std::size_t b) {
    return std::tuple(~table.nbytes(a), a) < std::tuple(~table.nbytes(b), b);
  });
  numbers.resize(count);
  return numbers;
}

// "[2, 3]"
void append_shape(const TensorTable& table, std::size_t tensor, std::string& line) {
  const char* before = "[";
  for (const std::uint64_t size : table.shape(tensor)) {
    line += before;
    line += std::to_string(size);
    before = ", ";
  }
  line += *before == '[' ? "[]" : "]";
}

// "512 B", "1.2 MB": the same text as format_size() of the Python package.
void append_size(std::uint64_t bytes, std::string& line) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  char text[64];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  line += text;
}

bool is_plain(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// The widths of the columns, and the names that are shown as other text.
struct Columns {
  std::size_t name = 0;
  std::size_t dtype = 0;
  std::size_t shape = 0;
  std::unordered_map<std::uint32_t, ShownName> shown;
};

void pad(std::size_t from, std::size_t to, std::string& line) {
  if (from < to) line.append(to - from, ' ');
}

}  // namespace

Outline outline_of(const TensorTable& table, std::size_t depth, std::size_t largest) {
  Outline outline;
  std::array<Totals, kDTypeCount> by_type{};
  Nodes nodes;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Totals tensor{1, parameters_of(table.shape(i)), table.nbytes(i)};
    add(tensor, outline.totals);
    add(tensor, by_type[static_cast<std::size_t>(table.dtype(i))]);
    if (depth != 0) add_nodes(table.name(i), depth, tensor, table.dtype(i), nodes);
  }
  for (std::size_t type = 0; type < by_type.size(); ++type) {
    if (by_type[type].tensors != 0) outline.dtypes.push_back({static_cast<DType>(type), by_type[type]});
  }
  std::stable_sort(outline.dtypes.begin(), outline.dtypes.end(),
                   [](const DTypeShare& a, const DTypeShare& b) { return a.totals.nbytes > b.totals.nbytes; });
  outline.largest = largest_of(table, largest);
  outline.nodes = std::move(nodes).sorted();
  return outline;
}

std::string tensor_lines(const TensorTable& table, std::span<const std::uint32_t> tensors,
                         const std::function<ShownName(std::string_view name)>& show) {
  Columns columns;
  std::string scratch;
  for (const std::uint32_t tensor : tensors) {
    const std::string_view name = table.name(tensor);
    std::size_t width = name.size();
    if (!is_plain(name)) width = columns.shown.emplace(tensor, show(name)).first->second.width;
    scratch.clear();
    append_shape(table, tensor, scratch);
    columns.name = std::max(columns.name, width);
    columns.dtype = std::max(columns.dtype, name_of(table.dtype(tensor)).size());
    columns.shape = std::max(columns.shape, scratch.size());
  }
  columns.name = std::min(columns.name, kWidestName);
  std::string lines;
  lines.reserve(tensors.size() * (columns.name + columns.dtype + columns.shape + 16));
  for (const std::uint32_t tensor : tensors) {
    const std::string_view name = table.name(tensor);
    const auto shown = columns.shown.find(tensor);
    lines += shown == columns.shown.end() ? name : std::string_view(shown->second.text);
    pad(shown == columns.shown.end() ? name.size() : shown->second.width, columns.name, lines);
    lines += "  ";
    const std::string_view dtype = name_of(table.dtype(tensor));
    lines += dtype;
    pad(dtype.size(), columns.dtype, lines);
    lines += "  ";
    std::size_t begin = lines.size();
    append_shape(table, tensor, lines);
    pad(lines.size() - begin, columns.shape, lines);
    lines += "  ";
    scratch.clear();
    append_size(table.nbytes(tensor), scratch);
    pad(scratch.size(), 9, lines);
    lines += scratch;
    lines += '\n';
  }
  return lines;
}

}  // namespace weightstore
