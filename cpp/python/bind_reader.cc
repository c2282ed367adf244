#include <pybind11/stl.h>

#include "base/name_order.h"
#include "bindings.h"
#include "bound_reader.h"
#include "collectable.h"
#include "gil.h"
#include "io/available_memory.h"
#include "memory.h"
#include "objects/py_limits.h"
#include "objects/py_object.h"
#include "objects/py_progress.h"
#include "objects/py_source.h"
#include "opaque.h"
#include "weightstore/error.h"
#include "weightstore/loader.h"
#include "weightstore/reader.h"
#include "weightstore/rename.h"
#include "weightstore/typed_metadata.h"

namespace weightstore::python {

namespace {

bool is_mmap(const std::string& backend) {
  if (backend == "mmap" || backend == "pread") return backend == "mmap";
  throw Error(ErrorCode::kInvalidArgument, "backend is '" + backend + "'; it is 'mmap' or 'pread'");
}

ReadOptions read_options(bool map, const std::string& verify, unsigned threads, const std::string& opaque,
                         const py::object& limits) {
  ReadOptions options;
  options.limits = limits_of(limits);
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

py::list left_out(const Reader& reader) {
  py::list values;
  for (const LeftOut& value : reader.table().left_out()) {
    values.append(py::make_tuple(to_str(value.name), to_str(value.type), to_str(value.reason)));
  }
  return values;
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

py::list unsigned_scalars(const Reader& reader) {
  const ScalarMap& map = reader.table().scalars();
  py::list names;
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (std::holds_alternative<std::uint64_t>(map.value(i))) names.append(to_str(map.name(i)));
  }
  return names;
}

std::size_t at(const Reader& reader, const py::str& name) {
  if (const auto tensor = find(reader, name)) return *tensor;
  try {
    return reader.table().at(py::cast<std::string>(name.attr("encode")("utf-8", "replace")));
  } catch (Error& error) {
    if (const std::string file = reader.file_name(); !file.empty()) error.in_file(file);
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

// ---- opening --------------------------------------------------------------------------------------------------------

Reader open_path(const py::object& path, const std::string& backend, const std::string& verify, unsigned threads,
                 const std::string& opaque, const py::object& limits) {
  const auto target = to_path(path);
  return open_released(read_options(is_mmap(backend), verify, threads, opaque, limits),
                       [&](const ReadOptions& options) { return open_model(target, options); });
}

Reader open_buffer(const py::object& data, const std::string& verify, unsigned threads, const std::string& opaque,
                   const py::object& limits) {
  const auto source = buffer_source(data);
  return open_released(read_options(true, verify, threads, opaque, limits),
                       [&](const ReadOptions& options) { return Reader::open(source, options); });
}

ObjectReader open_object(const py::object& file, const std::string& verify, unsigned threads, const std::string& opaque,
                         const py::object& limits) {
  const auto source = file_object_source(file);
  Reader reader = open_released(read_options(false, verify, threads, opaque, limits),
                                [&](const ReadOptions& options) { return Reader::open(source, options); });
  return ObjectReader(std::move(reader), source);
}

using ReaderClass = py::class_<Reader>;

void bind_opening(ReaderClass& cls) {
  const auto backend = py::arg("backend") = "mmap";
  const auto verify = py::arg("verify") = "off";
  const auto threads = py::arg("threads") = 0;
  const auto opaque = py::arg("opaque") = "skip";
  const auto limits = py::arg("limits") = py::none();
  cls.def_static("open", &open_path, py::arg("path"), py::kw_only(), backend, verify, threads, opaque, limits);
  cls.def_static("open_buffer", &open_buffer, py::arg("data"), py::kw_only(), verify, threads, opaque, limits);
  cls.def_static("open_object", &open_object, py::arg("file"), py::kw_only(), verify, threads, opaque, limits);
}

// ---- names and descriptions -----------------------------------------------------------------------------------------

py::list sorted_names(const Reader& reader) {
  const TensorTable& table = reader.table();
  const auto name = [&](std::uint32_t i) { return table.name(i); };
  // Most files are in this order. For others the keys serve as they are: memory for the numbers alone would often not
  // go back to the system.
  if (are_in_order(table.size(), name)) return name_list(table, [](std::size_t i) { return i; });
  const std::vector<NameKey> keys = sorted_name_keys(table.size(), name);
  return name_list(table, [&](std::size_t i) { return keys[i].number; });
}

py::list describe_many(const Reader& reader, const std::vector<std::size_t>& tensors) {
  py::list list(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) list[i] = describe(reader, checked(reader, tensors[i]));
  return list;
}

std::optional<QuantScheme> quant_scheme(const Reader& reader, std::size_t tensor) {
  const TensorInfo info = reader.table()[checked(reader, tensor)];
  return info.quant == nullptr ? std::nullopt : std::optional(*info.quant);
}

py::str file_of(const Reader& reader, std::size_t tensor) {
  const TensorTable& table = reader.table();
  return path_to_str(table.sources()[table.source_of(checked(reader, tensor))]->name());
}

py::object metadata(const Reader& reader) {
  if (!reader.table().has_metadata()) return py::none();
  return text_dict(reader.table().metadata());
}

Reader renamed(const Reader& reader, const std::vector<std::pair<std::size_t, std::string>>& names) {
  std::vector<const std::string*> name_of(reader.table().size(), nullptr);
  for (const auto& [tensor, name] : names) name_of[checked(reader, tensor)] = &name;
  // The hooks are called in the order of the numbers.
  NameHooks hooks;
  hooks.keep = [&, next = std::size_t{0}](const TensorInfo&) mutable { return name_of[next++] != nullptr; };
  hooks.rename = [&, next = std::size_t{0}](std::string_view) mutable {
    while (name_of[next] == nullptr) ++next;
    return *name_of[next++];
  };
  ReleaseGil nogil;
  return reader.renamed(hooks);
}

void bind_names(ReaderClass& cls) {
  cls.def("__len__", [](const Reader& r) { return r.table().size(); });
  cls.def("names", &sorted_names, "All names, sorted.");
  cls.def(
      "names_in_order", [](const Reader& r) { return name_list(r.table(), [](std::size_t i) { return i; }); },
      "All names, in the order of their data.");
  cls.def(
      "numbers", [](const Reader& r) { return r.table().by_name(); }, "The numbers of all tensors, sorted by name.");
  cls.def("renamed", &renamed, py::keep_alive<0, 1>(), py::arg("names"),
          "The same file with the tensors of a list of (number, new name) only.");
  cls.def("find", &find, py::arg("name"), "The number of a tensor, or None.");
  cls.def("at", &at, py::arg("name"), "The number of a tensor; raises TensorNotFound when there is none.");
}

void bind_descriptions(ReaderClass& cls) {
  cls.def_property_readonly("format", [](const Reader& r) { return to_str(to_string(r.format())); });
  cls.def_property_readonly("dialect", [](const Reader& r) { return to_str(r.table().dialect()); });
  cls.def_property_readonly("burn_release", [](const Reader& r) -> std::optional<std::string> {
    const auto release = r.table().burn_release();
    return release ? std::optional<std::string>(name_of(*release)) : std::nullopt;
  });
  cls.def(
      "describe", [](const Reader& r, std::size_t i) { return describe(r, checked(r, i)); }, py::arg("tensor"),
      "(name, dtype, shape, nbytes)");
  cls.def("describe_many", &describe_many, py::arg("tensors"));
  cls.def(
      "param_id", [](const Reader& r, std::size_t i) { return r.table()[checked(r, i)].param_id; }, py::arg("tensor"));
  cls.def("scheme", &quant_scheme, py::arg("tensor"));
  cls.def("source_of", &file_of, py::arg("tensor"), "The file that holds the tensor.");
  cls.def("metadata", &metadata, "As text; None when the file has no metadata at all.");
  cls.def(
      "typed_metadata", [](const Reader& r) { return r.table().typed_metadata(); },
      "With their types; None when the format has text only.");
  cls.def("scalars", [](const Reader& r) { return scalar_dict(r.table().scalars()); });
  cls.def("left_out", &left_out, "(name, type, reason) of each value that was not read.");
  cls.def("unsigned_scalars", &unsigned_scalars, "The names of the scalars that are stored as unsigned numbers.");
}

// ---- bytes ----------------------------------------------------------------------------------------------------------

template <class Bytes>
std::optional<Memory> memory_of(std::optional<Bytes> bytes) {
  return bytes ? std::optional<Memory>(std::in_place, std::move(*bytes)) : std::nullopt;
}

std::optional<Memory> view(const Reader& reader, std::size_t tensor) {
  ReleaseGil nogil;
  return memory_of(reader.view(checked(reader, tensor)));
}

std::optional<Memory> private_view(const Reader& reader, std::size_t tensor) {
  ReleaseGil nogil;
  return memory_of(reader.private_view(checked(reader, tensor)));
}

std::size_t verify_all(const Reader& reader, py::object callback) {
  const Progress progress = make_progress(std::move(callback));
  ReleaseGil nogil;
  return reader.verify_all(progress);
}

void bind_bytes(ReaderClass& cls) {
  const auto progress = py::arg("progress") = py::none();
  cls.def("view", &view, py::arg("tensor"), "Read-only memory over the file, or None.");
  cls.def("private_view", &private_view, py::arg("tensor"), "Copy-on-write memory over the file, or None.");
  cls.def("views", &views, py::arg("tensors"), py::kw_only(), py::arg("writable"),
          "view() or, if writable, private_view() of many tensors.");
  cls.def("read_bytes", &read_bytes, py::arg("tensor"));
  cls.def("read_slice", &read_slice, py::arg("tensor"), py::arg("dims"), py::arg("nbytes"),
          "A selection in new memory. Each dimension is (start, step, count).");
  cls.def("load", &load, py::arg("tensors"), progress, "Tensors in new memory.");
  cls.def("read_many", &read_many, py::arg("targets"), progress,
          "Fills memory that is given as (tensor, address, nbytes).");
  cls.def("verify_all", &verify_all, progress);
  cls.def("without_checksum", &Reader::without_checksum, "The tensors that verify_all() cannot check.");
}

}  // namespace

std::size_t checked(const Reader& reader, std::size_t tensor) {
  if (tensor >= reader.table().size()) throw py::index_error("no tensor has this number");
  return tensor;
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

void init_reader(py::module_& m) {
  ReaderClass cls(m, "Reader", "An open file. Tensors go by number, in the order of their data.",
                  only_from_functions());
  py::class_<ObjectReader, Reader>(m, "ObjectReader", "A Reader over a file object.",
                                   collectable<ObjectReader, &ObjectReader::visit, nullptr, false>());
  bind_opening(cls);
  bind_names(cls);
  bind_descriptions(cls);
  bind_bytes(cls);
}

}  // namespace weightstore::python
