// Sharded checkpoints, to be looked into without torch. Saver and Loader work on tensors of torch: cpp/torch binds
// them.

#include <pybind11/stl.h>

#include "bindings.h"
#include "checkpoint/find_model.h"
#include "collectable.h"
#include "gil.h"
#include "io/file_ops.h"
#include "objects/py_object.h"
#include "objects/py_progress.h"
#include "weightstore/loader.h"

namespace weightstore::python {

namespace {

// No checkpoint has a name with lone surrogates; it is reported as unknown.
std::string name_text(const py::str& name) { return py::cast<std::string>(name.attr("encode")("utf-8", "replace")); }

std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>> blocks(
    const CheckpointReader& reader, const py::str& name) {
  std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>> result;
  for (const CheckpointReader::Block& block : reader.blocks(name_text(name))) {
    result.emplace_back(block.buckets.begin, block.buckets.end, block.buckets.size, block.rows);
  }
  return result;
}

using Kind = checkpoint::DirectoryModel::Kind;

// The kind of the model in a directory, and its paths.
py::tuple find_model(const py::object& directory) {
  const auto target = to_path(directory);
  checkpoint::DirectoryModel model;
  {
    ReleaseGil nogil;
    model = checkpoint::find_model(target, checkpoint::SeveralIndexes::kRefuse, io::current_file_ops());
  }
  py::list paths;
  for (const std::filesystem::path& path : model.paths) paths.append(path_to_str(path.native()));
  return py::make_tuple(model.kind == Kind::kFile ? "file" : model.kind == Kind::kShards ? "shards" : "recis", paths);
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
      .def_property_readonly("reader", &CheckpointReader::reader, py::return_value_policy::copy)
      .def("tables", &CheckpointReader::tables, "The columns of every table.")
      .def("blocks", &blocks, py::arg("name"), "(begin, end, size, rows) of every block of a column.")
      .def(
          "verify",
          [](const CheckpointReader& reader, py::object callback) {
            const Progress progress = make_progress(std::move(callback));
            ReleaseGil nogil;
            return reader.verify(progress);
          },
          py::arg("progress") = py::none());
  m.def("find_model", &find_model, py::arg("directory"),
        "(kind, paths): \"file\" and the file or index, \"shards\" and all of them, or \"recis\" and its index.");
}

}  // namespace weightstore::python
