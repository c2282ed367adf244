// The one registration of the namespace `store`: a process can hold only one, and a second aborts it.

#include <torch/custom_class.h>

#include "checkpoint_reader.h"

namespace {

using weightstore::torch_bridge::CheckpointReader;

TORCH_LIBRARY(store, m) {
  m.class_<CheckpointReader>("CheckpointReader")
      .def(torch::init<const std::string&>(), "", {torch::arg("path")})
      .def("list_tensor_names", &CheckpointReader::list_tensor_names)
      .def("tensor_shape", &CheckpointReader::tensor_shape, "", {torch::arg("name")})
      .def("tensor_dtype", &CheckpointReader::tensor_dtype, "", {torch::arg("name")})
      .def("read_tensor", &CheckpointReader::read_tensor, "", {torch::arg("name")});
}

}  // namespace
