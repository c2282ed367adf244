// Sharded checkpoints, to be looked into without torch. Saver and Loader work on tensors of torch: cpp/torch binds
// them.

#include <pybind11/stl.h>

#include "bindings.h"
#include "collectable.h"
#include "gil.h"
#include "memory.h"
#include "objects/py_object.h"
#include "objects/py_progress.h"
#include "weightstore/error.h"
#include "weightstore/loader.h"

namespace weightstore::python {

namespace {

// No checkpoint has a name with lone surrogates; it is reported as unknown.
std::string name_text(const py::str& name) { return py::cast<std::string>(name.attr("encode")("utf-8", "replace")); }

// The stored bytes of a whole tensor.
std::uint64_t nbytes_of(const CheckpointReader& reader, const TensorInfo& info) {
  if (reader.blocks(info.name).empty()) return info.end - info.begin;
  return *contiguous_bytes(info.dtype, info.shape);
}

py::tuple describe(const CheckpointReader& reader, const py::str& name) {
  const TensorInfo info = reader.info(name_text(name));
  py::tuple shape(info.shape.size());
  for (std::size_t i = 0; i < info.shape.size(); ++i) shape[i] = py::int_(info.shape[i]);
  return py::make_tuple(to_str(name_of(info.dtype)), shape, nbytes_of(reader, info));
}

std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>> blocks(
    const CheckpointReader& reader, const py::str& name) {
  std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>> result;
  for (const CheckpointReader::Block& block : reader.blocks(name_text(name))) {
    result.emplace_back(block.buckets.begin, block.buckets.end, block.buckets.size, block.rows);
  }
  return result;
}

Memory allocate_for(const std::string& name, std::uint64_t nbytes) try {
  return allocate_memory(nbytes);
} catch (Error& error) {
  throw error.in_tensor(name);
}

Memory read(const CheckpointReader& reader, const py::str& name) {
  const std::string text = name_text(name);
  ReleaseGil nogil;
  Memory memory = allocate_for(text, nbytes_of(reader, reader.info(text)));
  reader.read(text, {memory.data(), memory.size()});
  return memory;
}

Memory read_rows(const CheckpointReader& reader, const py::str& name, std::uint64_t begin, std::uint64_t end) {
  const std::string text = name_text(name);
  ReleaseGil nogil;
  TensorInfo info = reader.info(text);
  if (info.shape.empty() || begin > end || end > info.shape.front()) {
    throw Error(ErrorCode::kInvalidArgument, "has no rows " + std::to_string(begin) + " to " + std::to_string(end))
        .in_tensor(text);
  }
  info.shape.front() = end - begin;
  Memory memory = allocate_for(text, contiguous_bytes(info.dtype, info.shape).value_or(0));
  reader.read_rows(text, begin, end, {memory.data(), memory.size()});
  return memory;
}

}  // namespace

void init_checkpoint(py::module_& m) {
  py::class_<CheckpointReader>(m, "CheckpointReader", "An open checkpoint. Columns of tables are called \"user@id\".",
                               only_from_functions())
      .def_static(
          "open",
          [](const py::object& path) {
            const auto target = to_path(path);
            ReleaseGil nogil;
            return CheckpointReader(target);
          },
          py::arg("path"))
      .def("names", &CheckpointReader::tensor_names, "All names, sorted.")
      .def("tables", &CheckpointReader::tables, "The columns of every table.")
      .def("describe", &describe, py::arg("name"), "(dtype, shape, nbytes)")
      .def("blocks", &blocks, py::arg("name"), "(begin, end, size, rows) of every block of a column.")
      .def("read", &read, py::arg("name"))
      .def("read_rows", &read_rows, py::arg("name"), py::arg("begin"), py::arg("end"))
      .def(
          "verify",
          [](const CheckpointReader& reader, py::object callback) {
            const Progress progress = make_progress(std::move(callback));
            ReleaseGil nogil;
            return reader.verify(progress);
          },
          py::arg("progress") = py::none());
}

}  // namespace weightstore::python
