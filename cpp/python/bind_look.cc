#include <pybind11/stl.h>

#include <bit>
#include <cstring>
#include <string>
#include <unordered_set>
#include <variant>

#include "bindings.h"
#include "gil.h"
#include "kernels/numbers.h"
#include "objects/py_object.h"
#include "objects/py_progress.h"
#include "weightstore/outline.h"
#include "weightstore/reader.h"
#include "weightstore/statistics.h"

namespace weightstore::python {

namespace {

void check_numbers(const Reader& reader, const std::vector<std::size_t>& tensors) {
  for (const std::size_t tensor : tensors) {
    if (tensor >= reader.table().size()) throw py::index_error("no tensor has this number");
  }
}

StatisticsOptions options_of(std::size_t bins, unsigned threads, py::object progress) {
  StatisticsOptions options;
  options.bins = bins;
  options.threads = threads;
  options.progress = make_progress(std::move(progress));
  return options;
}

py::object number_object(const Scalar& scalar) {
  return std::visit([](auto value) -> py::object { return py::cast(value); }, scalar);
}

py::tuple totals_tuple(const Totals& totals) {
  return py::make_tuple(totals.tensors, totals.parameters, totals.nbytes);
}

py::list statistics(const Reader& reader, const std::vector<std::size_t>& tensors, std::size_t bins, unsigned threads,
                    py::object progress) {
  check_numbers(reader, tensors);
  const StatisticsOptions options = options_of(bins, threads, std::move(progress));
  std::vector<std::optional<Statistics>> found;
  {
    ReleaseGil nogil;
    found = statistics_of(reader, tensors, options);
  }
  py::list results;
  for (const auto& one : found) {
    if (!one) {
      results.append(py::none());
    } else {
      results.append(py::make_tuple(one->count, one->nans, one->infinities, one->zeros, number_object(one->min),
                                    number_object(one->max), one->mean, one->deviation, one->histogram));
    }
  }
  return results;
}

py::list compare(const Reader& a, const Reader& b, const std::vector<std::pair<std::size_t, std::size_t>>& pairs,
                 unsigned threads, py::object progress) {
  for (const auto& [left, right] : pairs) {
    check_numbers(a, {left});
    check_numbers(b, {right});
  }
  const StatisticsOptions options = options_of(0, threads, std::move(progress));
  std::vector<std::optional<ValueDifference>> found;
  {
    ReleaseGil nogil;
    found = compare_values(a, b, pairs, options);
  }
  py::list results;
  for (const auto& one : found) {
    if (!one) {
      results.append(py::none());
    } else {
      results.append(py::make_tuple(one->count, one->differing, one->unmeasured, one->max_absolute, one->max_relative));
    }
  }
  return results;
}

// Integers as int, bools as bool, everything else as float. None for a type without numbers.
py::object numbers_of(const std::string& dtype_name, const py::object& data) {
  const DType type = kernels::number_type(dtype_named(dtype_name));
  const auto kind = kernels::number_kind(type);
  if (kind == kernels::NumberKind::kNone) return py::none();
  const SharedBytes held = buffer_bytes(data);
  const std::size_t count = held.bytes.size() * 8 / bits_of(type);
  std::vector<double> numbers(count);
  kernels::decode_numbers(type, held.bytes.data(), count, numbers.data());
  const std::string_view name = name_of(type);
  const bool is_bool = name.starts_with("BOOL") || name.starts_with("Bool");
  py::list list(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = 0;
    if (kind == kernels::NumberKind::kSigned || kind == kernels::NumberKind::kUnsigned) {
      std::memcpy(&bits, held.bytes.data() + i * sizeof bits, sizeof bits);
    }
    if (is_bool) {
      list[i] = py::bool_(numbers[i] != 0);
    } else if (kind == kernels::NumberKind::kSigned) {
      list[i] = py::int_(std::bit_cast<std::int64_t>(bits));
    } else if (kind == kernels::NumberKind::kUnsigned) {
      list[i] = py::int_(bits);
    } else if (name[0] == 'I' || name[0] == 'U') {
      list[i] = py::int_(static_cast<std::int64_t>(numbers[i]));
    } else {
      list[i] = py::float_(numbers[i]);
    }
  }
  return list;
}

py::tuple dtype_names(std::uint64_t set) {
  py::list names;
  for (int type = 0; type < kDTypeCount; ++type) {
    if ((set >> type & 1) != 0) names.append(to_str(name_of(static_cast<DType>(type))));
  }
  return py::tuple(names);
}

py::tuple outline(const Reader& reader, std::size_t depth, std::size_t largest) {
  Outline found;
  {
    ReleaseGil nogil;
    found = outline_of(reader.table(), depth, largest);
  }
  py::list dtypes;
  for (const DTypeShare& share : found.dtypes) {
    dtypes.append(py::make_tuple(to_str(name_of(share.dtype)), totals_tuple(share.totals)));
  }
  py::list nodes;
  for (const OutlineNode& node : found.nodes) {
    nodes.append(py::make_tuple(to_str(node.path), node.is_tensor, node.depth, totals_tuple(node.totals),
                                dtype_names(node.dtypes)));
  }
  return py::make_tuple(totals_tuple(found.totals), dtypes, found.largest, nodes);
}

std::string lines(const Reader& reader, const std::vector<std::uint32_t>& tensors, const py::function& show) {
  for (const std::uint32_t tensor : tensors) check_numbers(reader, {tensor});
  return tensor_lines(reader.table(), tensors, [&](std::string_view name) {
    const auto [text, width] = py::cast<std::pair<std::string, std::size_t>>(show(to_str(name)));
    return ShownName{text, width};
  });
}

// The files that hold the tensors, each once: several sources may read one file.
py::list files(const Reader& reader) {
  py::list paths;
  std::unordered_set<std::string> seen;
  for (const auto& source : reader.table().sources()) {
    if (std::string name = source->name(); seen.insert(name).second) paths.append(path_to_str(name));
  }
  return paths;
}

}  // namespace

void init_look(py::module_& m) {
  m.def("files", &files, py::arg("reader"), "The files that hold the tensors.");
  m.def(
      "tensor_lines",
      [](const Reader& r, const std::vector<std::uint32_t>& tensors, const py::function& show) {
        return py::bytes(lines(r, tensors, show));
      },
      py::arg("reader"), py::arg("tensors"), py::arg("show"),
      "A table of tensors as text in UTF-8. show(name) gives text and width of a name that is not printable ASCII.");
  m.def("numbers_of", &numbers_of, py::arg("dtype"), py::arg("data"),
        "The numbers in the bytes of a few elements as a list, or None for a type without numbers.");
  m.def("outline", &outline, py::arg("reader"), py::kw_only(), py::arg("depth"), py::arg("largest"),
        "((tensors, parameters, nbytes), [(dtype, totals)], numbers of the largest tensors, [(path, is_tensor, depth, "
        "totals, dtypes)]).");
  m.def(
      "statistics", &statistics, py::arg("reader"), py::arg("tensors"), py::kw_only(), py::arg("bins") = 0,
      py::arg("threads") = 0, py::arg("progress") = py::none(),
      "(count, nans, infinities, zeros, min, max, mean, deviation, histogram) of each tensor, or None where a type has "
      "no numbers.");
  m.def("compare_values", &compare, py::arg("a"), py::arg("b"), py::arg("pairs"), py::kw_only(), py::arg("threads") = 0,
        py::arg("progress") = py::none(),
        "(count, differing, unmeasured, max_absolute, max_relative) of each pair of tensors, or None.");
}

}  // namespace weightstore::python
