#include <pybind11/stl.h>

#include <memory>
#include <string>

#include "bindings.h"
#include "collectable.h"
#include "gil.h"
#include "memory.h"
#include "objects/py_object.h"
#include "objects/py_producer.h"
#include "weightstore/byte_producer.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/transform.h"

namespace weightstore::python {

namespace {

using Producer = std::shared_ptr<ByteProducer>;

Producer of_buffer(const py::object& data) {
  SharedBytes held = buffer_bytes(data);
  return resident_bytes(held.bytes, std::move(held.owner));
}

Producer of_memory(std::uintptr_t address, std::size_t nbytes, py::object owner) {
  return resident_bytes({reinterpret_cast<const std::byte*>(address), nbytes}, share(std::move(owner)));
}

Producer of_tensor(const Reader& reader, std::size_t tensor) {
  const TensorTable& table = reader.table();
  if (tensor >= table.size()) throw py::index_error("the file has " + std::to_string(table.size()) + " tensors");
  return reader.producer(tensor);
}

Memory read(ByteProducer& producer) {
  ReleaseGil nogil;
  Memory out = allocate_memory(producer.size());
  if (out.size() != 0) producer.fill(0, {out.data(), out.size()});
  producer.finished();
  return out;
}

void read_into(ByteProducer& producer, std::uintptr_t address, std::size_t nbytes) {
  if (nbytes != producer.size()) {
    throw Error(ErrorCode::kInvalidArgument, "there is room for " + std::to_string(nbytes) + " bytes, but there are " +
                                                 std::to_string(producer.size()));
  }
  ReleaseGil nogil;
  if (nbytes != 0) producer.fill(0, {reinterpret_cast<std::byte*>(address), nbytes});
  producer.finished();
}

}  // namespace

void init_producer(py::module_& m) {
  py::class_<ByteProducer, Producer>(m, "Producer", "Bytes that are made when they are written, block by block.",
                                     only_from_functions())
      .def_static("buffer", &of_buffer, py::arg("data"), "The memory of a contiguous buffer.")
      .def_static("memory", &of_memory, py::arg("address"), py::arg("nbytes"), py::arg("owner"),
                  "Memory that `owner` keeps alive.")
      .def_static("deferred", &callable_bytes, py::arg("nbytes"), py::arg("produce"),
                  "What produce() returns: a buffer, or an iterable of buffers.")
      .def_static("tensor", &of_tensor, py::keep_alive<0, 1>(), py::arg("reader"), py::arg("tensor"),
                  "A tensor of a file, read as it is written and verified as the reader was told to.")
      .def_property_readonly("nbytes", &ByteProducer::size)
      .def(
          "cast",
          [](const Producer& bytes, const std::string& from, const std::string& to) {
            return cast_bytes(bytes, dtype_named(from), dtype_named(to));
          },
          py::arg("from_dtype"), py::arg("to_dtype"))
      .def(
          "transpose",
          [](const Producer& bytes, const std::string& dtype, std::uint64_t rows, std::uint64_t columns) {
            return transposed_bytes(bytes, item_bytes_of(dtype), rows, columns);
          },
          py::arg("dtype"), py::arg("rows"), py::arg("columns"))
      .def(
          "dequantize",
          [](const Producer& bytes, const QuantScheme& scheme, const Shape& shape, const std::string& to) {
            return dequantized_bytes(bytes, scheme, shape, dtype_named(to));
          },
          py::arg("scheme"), py::arg("shape"), py::arg("dtype"), "The numbers of a quantized tensor.")
      .def(
          "quantize",
          [](const Producer& bytes, const QuantScheme& scheme, const Shape& shape) {
            return quantized_bytes(bytes, scheme, shape);
          },
          py::arg("scheme"), py::arg("shape"), "The payload of F32 numbers.")
      .def(
          "dequantize_blocks",
          [](const Producer& bytes, const std::string& from, const std::string& to) {
            return dequantized_bytes(bytes, dtype_named(from), dtype_named(to));
          },
          py::arg("from_dtype"), py::arg("to_dtype"), "The numbers of a tensor that is quantized in blocks.")
      .def("read", &read, "All of it, in new memory.")
      .def("read_into", &read_into, py::arg("address"), py::arg("nbytes"), "All of it, into memory that is there.");
}

}  // namespace weightstore::python
