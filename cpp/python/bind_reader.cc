#include <pybind11/stl.h>

#include "bindings.h"
#include "collectable.h"
#include "gil.h"
#include "io/available_memory.h"
#include "memory.h"
#include "opaque.h"
#include "py_object.h"
#include "py_progress.h"
#include "py_source.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"

namespace weightstore::python {

namespace {

ReadOptions read_options(bool map, const std::string& verify, unsigned threads, const std::string& opaque) {
  ReadOptions options;
  options.opaque = opaque_named(opaque);
  options.map = map;
  options.threads = threads;
  if (verify == "lazy") {
    options.verify = Verify::kLazy;
  } else if (verify == "full") {
    options.verify = Verify::kFull;
  } else if (verify != "off") {
    throw Error(ErrorCode::kInvalidArgument, "verify is '" + verify + "'; it is one of 'off', 'lazy' and 'full'");
  }
  return options;
}

// Opens without the GIL. A full verification may take long, and answers Ctrl-C.
template <class Open>
Reader open_released(ReadOptions options, Open open) {
  options.verify_progress = make_progress(py::none());
  ReleaseGil nogil;
  return open(options);
}

py::object opt(const std::optional<Memory>& memory) { return memory ? py::cast(*memory) : py::object(py::none()); }

std::size_t checked(const Reader& reader, std::size_t tensor) {
  if (tensor >= reader.table().size()) throw py::index_error("no tensor has this number");
  return tensor;
}

// One list in one call: a hundred thousand names must not cost a hundred thousand calls.
template <class NumberOf>
py::list name_list(const TensorTable& table, NumberOf number_of) {
  py::list names(table.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    PyList_SET_ITEM(names.ptr(), static_cast<Py_ssize_t>(i), to_str(table.name(number_of(i))).release().ptr());
  }
  return names;
}

py::tuple shape_tuple(const TensorTable& table, std::size_t tensor) {
  const Shape shape = table.shape(tensor);
  py::tuple dims(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) dims[i] = py::int_(shape[i]);
  return dims;
}

py::tuple describe(const Reader& reader, std::size_t tensor) {
  const TensorTable& table = reader.table();
  return py::make_tuple(to_str(table.name(tensor)), to_str(name_of(table.dtype(tensor))), shape_tuple(table, tensor),
                        table.nbytes(tensor));
}

py::dict text_dict(const TextMap& map) {
  py::dict dict;
  for (std::size_t i = 0; i < map.size(); ++i) dict[to_str(map.key(i))] = to_str(map.value(i));
  return dict;
}

py::dict scalar_dict(const ScalarMap& map) {
  py::dict dict;
  for (std::size_t i = 0; i < map.size(); ++i) {
    dict[to_str(map.name(i))] = std::visit([](auto v) { return py::cast(v); }, map.value(i));
  }
  return dict;
}

std::optional<std::size_t> find(const Reader& reader, const py::str& name) {
  Py_ssize_t length = 0;
  const char* data = PyUnicode_AsUTF8AndSize(name.ptr(), &length);
  if (data == nullptr) {
    PyErr_Clear();  // lone surrogates: no file has such a name
    return std::nullopt;
  }
  return reader.table().find({data, static_cast<std::size_t>(length)});
}

std::size_t at(const Reader& reader, const py::str& name) {
  if (const auto tensor = find(reader, name)) return *tensor;
  try {
    return reader.table().at(py::cast<std::string>(name.attr("encode")("utf-8", "replace")));
  } catch (Error& error) {
    const auto& sources = reader.table().sources();
    if (sources.size() == 1 || reader.format() == Format::kPytorch) error.in_file(sources[0]->name());
    error.of_format(reader.format());
    throw;
  }
}

// What `make` throws, as an error about a tensor.
template <class Make>
auto in_place(const Reader& reader, std::size_t tensor, Make make) {
  try {
    return make();
  } catch (Error& error) {
    const TensorTable& table = reader.table();
    error.in_tensor(table.name(tensor)).in_file(table.sources()[table.source_of(tensor)]->name());
    error.of_format(reader.format());
    throw;
  }
}

py::bytes read_bytes(const Reader& reader, std::size_t tensor) {
  const std::uint64_t size = reader.table().nbytes(checked(reader, tensor));
  in_place(reader, tensor, [&] {
    reader.check_expansion(size);
    io::require_memory(size);
  });
  auto bytes = py::reinterpret_steal<py::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!bytes) throw py::error_already_set();
  const MutableBytes out(reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes.ptr())), size);
  ReleaseGil nogil;
  reader.read(tensor, out);
  return bytes;
}

using Dims = std::vector<std::tuple<std::uint64_t, std::int64_t, std::uint64_t>>;

Memory read_slice(const Reader& reader, std::size_t tensor, const Dims& dims, std::size_t nbytes) {
  checked(reader, tensor);
  std::vector<SliceDim> slice;
  for (const auto& [start, step, count] : dims) slice.push_back({start, step, count});
  ReleaseGil nogil;
  Memory memory = in_place(reader, tensor, [&] {
    reader.check_expansion(nbytes);
    return allocate_memory(nbytes);
  });
  reader.read_slice(tensor, slice, MutableBytes(memory.data(), memory.size()));
  return memory;
}

using Views = std::vector<std::optional<Memory>>;

Views views(const Reader& reader, const std::vector<std::size_t>& tensors, bool writable) {
  for (std::size_t tensor : tensors) checked(reader, tensor);
  ReleaseGil nogil;
  Views result(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (writable) {
      if (auto bytes = reader.private_view(tensors[i])) result[i].emplace(std::move(*bytes));
    } else {
      if (auto bytes = reader.view(tensors[i])) result[i].emplace(std::move(*bytes));
    }
  }
  return result;
}

std::vector<Memory> load(const Reader& reader, const std::vector<std::size_t>& tensors, py::object callback) {
  for (std::size_t tensor : tensors) checked(reader, tensor);
  const Progress progress = make_progress(std::move(callback));
  ReleaseGil nogil;
  std::vector<Memory> result;
  result.reserve(tensors.size());
  for (SharedMutableBytes& bytes : reader.load(tensors, progress)) result.emplace_back(std::move(bytes));
  return result;
}

using Targets = std::vector<std::tuple<std::size_t, std::uintptr_t, std::size_t>>;

void read_many(const Reader& reader, const Targets& targets, py::object callback) {
  std::vector<Reader::Request> requests;
  requests.reserve(targets.size());
  for (const auto& [tensor, address, size] : targets) {
    requests.push_back({checked(reader, tensor), MutableBytes(reinterpret_cast<std::byte*>(address), size)});
  }
  const Progress progress = make_progress(std::move(callback));
  ReleaseGil nogil;
  reader.read_many(requests, progress);
}

// A Reader over a file object, which it keeps alive.
struct ObjectReader : Reader {
  ObjectReader(Reader reader, std::shared_ptr<const ByteSource> read)
      : Reader(std::move(reader)), source(std::move(read)) {}

  void visit(Visitor& visitor) const {
    if (const auto* keeps = dynamic_cast<const KeepsObjects*>(source.get())) keeps->visit(visitor);
  }

  std::shared_ptr<const ByteSource> source;
};

}  // namespace

void init_reader(py::module_& m) {
  const auto map = py::arg("map") = true;
  const auto verify = py::arg("verify") = "off";
  const auto threads = py::arg("threads") = 0;
  const auto unknown = py::arg("opaque") = "error";
  py::class_<Reader>(m, "Reader", "An open file. Tensors go by number, in the order of their data.",
                     only_from_functions())
      .def_static(
          "open",
          [](const py::object& path, bool map_it, const std::string& check, unsigned count, const std::string& opaque) {
            const auto target = to_path(path);
            return open_released(read_options(map_it, check, count, opaque),
                                 [&](const ReadOptions& options) { return Reader::open(target, options); });
          },
          py::arg("path"), py::kw_only(), map, verify, threads, unknown)
      .def_static(
          "open_buffer",
          [](const py::object& data, const std::string& check, unsigned count, const std::string& opaque) {
            const auto source = buffer_source(data);
            return open_released(read_options(true, check, count, opaque),
                                 [&](const ReadOptions& options) { return Reader::open(source, options); });
          },
          py::arg("data"), py::kw_only(), verify, threads, unknown)
      .def_static(
          "open_object",
          [](const py::object& file, const std::string& check, unsigned count, const std::string& opaque) {
            const auto source = file_object_source(file);
            Reader reader = open_released(read_options(false, check, count, opaque),
                                          [&](const ReadOptions& options) { return Reader::open(source, options); });
            return ObjectReader(std::move(reader), source);
          },
          py::arg("file"), py::kw_only(), verify, threads, unknown)
      .def_property_readonly("format", [](const Reader& r) { return to_str(to_string(r.format())); })
      .def_property_readonly("dialect", [](const Reader& r) { return to_str(r.table().dialect()); })
      .def("__len__", [](const Reader& r) { return r.table().size(); })
      .def(
          "names",
          [](const Reader& r) {
            const std::vector<std::uint32_t> order = r.table().by_name();
            return name_list(r.table(), [&](std::size_t i) { return order[i]; });
          },
          "All names, sorted.")
      .def(
          "names_in_order", [](const Reader& r) { return name_list(r.table(), [](std::size_t i) { return i; }); },
          "All names, in the order of their data.")
      .def(
          "numbers", [](const Reader& r) { return r.table().by_name(); }, "The tensors' numbers, sorted by name.")
      .def("find", &find, py::arg("name"), "The number of a tensor, or None.")
      .def("at", &at, py::arg("name"), "The number of a tensor; TensorNotFound when there is none.")
      .def(
          "describe", [](const Reader& r, std::size_t i) { return describe(r, checked(r, i)); }, py::arg("tensor"),
          "(name, dtype, shape, nbytes)")
      .def(
          "describe_many",
          [](const Reader& r, const std::vector<std::size_t>& tensors) {
            py::list list(tensors.size());
            for (std::size_t i = 0; i < tensors.size(); ++i) list[i] = describe(r, checked(r, tensors[i]));
            return list;
          },
          py::arg("tensors"))
      .def(
          "param_id", [](const Reader& r, std::size_t i) { return r.table()[checked(r, i)].param_id; },
          py::arg("tensor"))
      .def(
          "scheme",
          [](const Reader& r, std::size_t i) -> std::optional<std::string> {
            const TensorInfo info = r.table()[checked(r, i)];
            if (info.quant == nullptr) return std::nullopt;
            return to_string(*info.quant);
          },
          py::arg("tensor"))
      .def(
          "source_of",
          [](const Reader& r, std::size_t i) {
            return path_to_str(r.table().sources()[r.table().source_of(checked(r, i))]->name());
          },
          py::arg("tensor"), "The file that holds the tensor.")
      .def(
          "metadata",
          [](const Reader& r) -> py::object {
            if (!r.table().has_metadata()) return py::none();
            return text_dict(r.table().metadata());
          },
          "None when the file has no metadata at all.")
      .def("scalars", [](const Reader& r) { return scalar_dict(r.table().scalars()); })
      .def(
          "view",
          [](const Reader& r, std::size_t i) {
            std::optional<Memory> memory;
            {
              ReleaseGil nogil;
              if (auto bytes = r.view(checked(r, i))) memory.emplace(std::move(*bytes));
            }
            return opt(memory);
          },
          py::arg("tensor"), "Read-only memory over the file, or None.")
      .def(
          "private_view",
          [](const Reader& r, std::size_t i) {
            std::optional<Memory> memory;
            {
              ReleaseGil nogil;
              if (auto bytes = r.private_view(checked(r, i))) memory.emplace(std::move(*bytes));
            }
            return opt(memory);
          },
          py::arg("tensor"), "Copy-on-write memory over the file, or None.")
      .def("views", &views, py::arg("tensors"), py::kw_only(), py::arg("writable"),
           "view() or, writable, private_view() of many tensors.")
      .def("read_bytes", &read_bytes, py::arg("tensor"))
      .def("read_slice", &read_slice, py::arg("tensor"), py::arg("dims"), py::arg("nbytes"),
           "A selection, each dimension as (start, step, count), in memory of its own.")
      .def("load", &load, py::arg("tensors"), py::arg("progress") = py::none(), "Tensors in memory of their own.")
      .def("read_many", &read_many, py::arg("targets"), py::arg("progress") = py::none(),
           "Fills memory given as (tensor, address, nbytes).")
      .def(
          "verify_all",
          [](const Reader& r, py::object callback) {
            const Progress progress = make_progress(std::move(callback));
            ReleaseGil nogil;
            return r.verify_all(progress);
          },
          py::arg("progress") = py::none())
      .def("without_checksum", &Reader::without_checksum, "The tensors that verify_all() cannot check.");
  py::class_<ObjectReader, Reader>(m, "ObjectReader", "A Reader over a file object.",
                                   collectable<ObjectReader, &ObjectReader::visit, nullptr, false>());
}

}  // namespace weightstore::python
