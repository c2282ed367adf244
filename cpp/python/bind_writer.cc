#include <pybind11/stl.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "collectable.h"
#include "formats/registry.h"
#include "gil.h"
#include "io/available_memory.h"
#include "io/huge_buffer.h"
#include "objects/py_object.h"
#include "objects/py_producer.h"
#include "objects/tensor_batch.h"
#include "weightstore/convert.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"
#include "write_options.h"

namespace weightstore::python {

namespace {

// A write runs without the GIL and calls back into Python, where the contents can be reached: they must stay as they
// are until it ends. Producers have a state, so that there is one write at a time, too.
class SharedWriter {
 public:
  const Writer& contents() const { return writer_; }

  Writer& to_change() {
    if (writing_.load()) refuse("is being written, and cannot be changed meanwhile");
    return writer_;
  }

  template <class Write>
  auto write(Write write) {
    if (writing_.exchange(true)) refuse("is being written already; wait for that to end");
    struct Done {
      std::atomic<bool>& writing;
      ~Done() { writing.store(false); }
    } done{writing_};
    return write(std::as_const(writer_));
  }

  // Adds a producer that was made for this writer alone.
  void add_own(NewTensor tensor) {
    const auto* keeps = dynamic_cast<const KeepsObjects*>(tensor.bytes.get());
    to_change().add(std::move(tensor));
    if (keeps != nullptr) own_.push_back(keeps);
  }

  // Shows the collector what add_own() was given. A producer that is, or was, a Python object too is not shown. This
  // depends on nothing that a write changes: it copies producers, without the GIL, and the collector, which looks more
  // than once, must see the same each time. Otherwise it would clear objects that are in use.
  void visit(Visitor& visitor) const {
    for (const KeepsObjects* keeps : own_) keeps->visit(visitor);
  }

  // The collector only clears what nobody can reach, and a writer that is being written is reached by the call.
  void clear() {
    Writer& writer = to_change();
    own_.clear();  // first: what follows runs Python code, and the collector may come again
    writer = Writer();
  }

 private:
  [[noreturn]] static void refuse(const char* why) {
    throw Error(ErrorCode::kInvalidArgument, std::string("the writer ") + why);
  }

  Writer writer_;
  std::vector<const KeepsObjects*> own_;  // producers in writer_
  std::atomic<bool> writing_{false};
};

NewTensor new_tensor(const py::str& name, const std::string& dtype, Shape shape, std::shared_ptr<ByteProducer> bytes,
                     std::optional<std::uint64_t> param_id) {
  return {std::string(utf8_of(name)), dtype_named(dtype), std::move(shape), std::move(bytes), param_id, nullptr};
}

void add_memory(SharedWriter& writer, const py::str& name, const std::string& dtype, Shape shape,
                std::uintptr_t address, std::size_t nbytes, py::object owner, std::optional<std::uint64_t> param_id) {
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(address), nbytes);
  writer.to_change().add(
      new_tensor(name, dtype, std::move(shape), resident_bytes(bytes, share(std::move(owner))), param_id));
}

void add_strided(SharedWriter& writer, const py::str& name, const std::string& dtype, Shape shape,
                 std::uintptr_t address, std::size_t item_bytes, std::vector<std::uint64_t> array_shape,
                 std::vector<std::int64_t> byte_strides, py::object owner, std::optional<std::uint64_t> param_id,
                 std::size_t sign_bytes, bool negate, bool conjugate) {
  StridedArray array;
  array.data = reinterpret_cast<const std::byte*>(address);
  array.item_bytes = item_bytes;
  array.shape = std::move(array_shape);
  array.byte_strides = std::move(byte_strides);
  array.sign_bytes = sign_bytes;
  array.negate = negate;
  array.conjugate = conjugate;
  auto bytes = strided_bytes(std::move(array), share(std::move(owner)));
  writer.to_change().add(new_tensor(name, dtype, std::move(shape), std::move(bytes), param_id));
}

void add_deferred(SharedWriter& writer, const py::str& name, const std::string& dtype, Shape shape, py::object produce,
                  std::optional<std::uint64_t> param_id) {
  const auto size = contiguous_bytes(dtype_named(dtype), shape);
  if (!size) {
    throw Error(ErrorCode::kInvalidArgument, "type " + dtype + " and this shape do not make a number of whole bytes")
        .in_tensor(utf8_of(name));
  }
  writer.add_own(new_tensor(name, dtype, std::move(shape), callable_bytes(*size, std::move(produce)), param_id));
}

void add_quantized(SharedWriter& writer, const py::str& name, const Reader& reader, std::size_t tensor,
                   std::optional<std::uint64_t> param_id) {
  const TensorTable& table = reader.table();
  if (tensor >= table.size()) throw py::index_error("no tensor has this number");
  TensorInfo info = table[tensor];
  if (info.quant == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "the tensor is not quantized").in_tensor(utf8_of(name));
  }
  NewTensor copy;
  copy.name = utf8_of(name);
  copy.dtype = info.dtype;
  copy.shape = std::move(info.shape);
  copy.bytes = reader.producer(tensor);
  copy.param_id = param_id;
  copy.quant = std::move(info.quant);
  writer.to_change().add(std::move(copy));
}

// The bytes of a known array, gathered while they are written if they are not in order.
std::shared_ptr<ByteProducer> bytes_of(const TensorBatch& batch, const KnownArray& array, const SharedObject& owner) {
  if (array.is_row_major) return resident_bytes(ConstBytes(array.data, array.nbytes), owner);
  StridedArray strided;
  strided.data = array.data;
  strided.item_bytes = bits_of(array.dtype) / 8;
  const auto sizes = batch.sizes(array);
  const auto strides = batch.byte_strides(array);
  strided.shape.assign(sizes.begin(), sizes.end());
  strided.byte_strides.assign(strides.begin(), strides.end());
  return strided_bytes(std::move(strided), owner);
}

void add_batch(SharedWriter& writer, const py::list& names, const TensorBatch& batch, const py::object& add_other,
               const py::object& param_ids) {
  if (names.size() != batch.size()) throw py::value_error("not as many names as values");
  const SharedObject owner = share(batch.kept());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const py::object name = names[i];
    if (!PyUnicode_Check(name.ptr())) {
      throw py::type_error("names of tensors are str, not " + py::cast<std::string>(py::repr(name)));
    }
    const KnownArray* array = batch.known(i);
    if (array == nullptr) {
      add_other(i);
      continue;
    }
    NewTensor tensor;
    tensor.name = utf8_of(py::reinterpret_borrow<py::str>(name));
    tensor.dtype = array->dtype;
    const auto sizes = batch.sizes(*array);
    tensor.shape.assign(sizes.begin(), sizes.end());
    tensor.bytes = bytes_of(batch, *array, owner);
    if (!param_ids.is_none()) tensor.param_id = py::cast<std::optional<std::uint64_t>>(param_ids[py::int_(i)]);
    writer.to_change().add(std::move(tensor));
  }
}

void set_metadata(SharedWriter& writer, const py::dict& metadata) {
  TextMap map;
  for (const auto& [key, value] : metadata) {
    if (!py::isinstance<py::str>(key) || !py::isinstance<py::str>(value)) {
      throw py::type_error("metadata maps str to str, but key " + py::cast<std::string>(py::repr(key)) + " has value " +
                           py::cast<std::string>(py::repr(value)));
    }
    map.add(utf8_of(py::reinterpret_borrow<py::str>(key)), utf8_of(py::reinterpret_borrow<py::str>(value)));
  }
  map.sort();
  writer.to_change().set_metadata(map);
}

void set_typed_metadata(SharedWriter& writer, std::shared_ptr<const TypedMetadata> metadata) {
  writer.to_change().set_typed_metadata(std::move(metadata));
}

void set_scalar(SharedWriter& writer, const py::str& name, const py::object& value, bool is_unsigned) {
  const std::string_view key = utf8_of(name);
  const bool is_integer = PyLong_Check(value.ptr()) && !PyBool_Check(value.ptr());
  if (is_unsigned && !is_integer) {
    throw py::type_error("scalar '" + std::string(key) + "' is unsigned, so it is an int and not " +
                         Py_TYPE(value.ptr())->tp_name);
  }
  if (PyBool_Check(value.ptr())) return writer.to_change().set_scalar(key, value.ptr() == Py_True);
  if (PyFloat_Check(value.ptr())) return writer.to_change().set_scalar(key, PyFloat_AS_DOUBLE(value.ptr()));
  if (is_integer) {
    int overflow = 0;
    const long long small = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow == 0 && !is_unsigned) return writer.to_change().set_scalar(key, static_cast<std::int64_t>(small));
    const unsigned long long large = PyLong_AsUnsignedLongLong(value.ptr());
    if (PyErr_Occurred() == nullptr) return writer.to_change().set_scalar(key, static_cast<std::uint64_t>(large));
    PyErr_Clear();
    throw Error(ErrorCode::kInvalidArgument, "scalar '" + std::string(key) + "' does not fit " +
                                                 (is_unsigned ? "64 bits without a sign" : "64 bits"));
  }
  throw py::type_error("scalar '" + std::string(key) + "' is neither int, float nor bool but " +
                       Py_TYPE(value.ptr())->tp_name);
}

// ---- writing --------------------------------------------------------------------------------------------------------

void write_file(SharedWriter& writer, const py::object& path, const std::string& format, bool durable, bool overwrite,
                bool checksums, const std::string& burn, py::object progress) {
  const auto target = to_path(path);
  const auto options = write_options(durable, overwrite, checksums, burn, std::move(progress));
  ReleaseGil nogil;
  writer.write([&](const Writer& contents) { contents.write_file(target, format_named(format), options); });
}

std::vector<std::string> write_shards(SharedWriter& writer, const py::object& index, std::uint64_t max_shard_bytes,
                                      bool durable, bool overwrite, bool checksums, py::object progress) {
  const auto target = to_path(index);
  const auto options = write_options(durable, overwrite, checksums, "", std::move(progress));
  ReleaseGil nogil;
  return writer.write([&](const Writer& contents) { return contents.write_shards(target, max_shard_bytes, options); });
}

std::vector<std::string> write_file_or_shards(SharedWriter& writer, const py::object& path,
                                              std::uint64_t max_shard_bytes, bool durable, bool overwrite,
                                              bool checksums, py::object progress) {
  const auto target = to_path(path);
  const auto options = write_options(durable, overwrite, checksums, "", std::move(progress));
  ReleaseGil nogil;
  return writer.write(
      [&](const Writer& contents) { return contents.write_file_or_shards(target, max_shard_bytes, options); });
}

py::bytes write_bytes(SharedWriter& writer, const std::string& format, bool checksums, const std::string& burn) {
  const auto options = write_options(false, true, checksums, burn, py::none());
  SharedObject bytes;
  const auto allocate = [&](std::uint64_t size) {
    io::require_memory(size);
    HoldGil gil;
    PyObject* made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
    if (made == nullptr) throw py::error_already_set();
    bytes = share(py::reinterpret_steal<py::object>(made));
    const MutableBytes out(reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes.get())), size);
    io::prefer_huge_pages(out);
    return out;
  };
  {
    ReleaseGil nogil;
    writer.write([&](const Writer& contents) { contents.write_memory(format_named(format), allocate, options); });
  }
  return py::reinterpret_borrow<py::bytes>(bytes.get());
}

// ---- the class ------------------------------------------------------------------------------------------------------

using WriterClass = py::class_<SharedWriter>;

void bind_contents(WriterClass& cls) {
  const auto param_id = py::arg("param_id") = py::none();
  cls.def("__len__", [](const SharedWriter& w) { return w.contents().tensors().size(); });
  cls.def(
      "add",
      [](SharedWriter& w, const py::str& name, const std::string& dtype, Shape shape,
         std::shared_ptr<ByteProducer> bytes, std::optional<std::uint64_t> id, std::optional<QuantScheme> scheme) {
        NewTensor tensor = new_tensor(name, dtype, std::move(shape), std::move(bytes), id);
        if (scheme) tensor.quant = std::make_shared<const QuantScheme>(std::move(*scheme));
        w.to_change().add(std::move(tensor));
      },
      py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("bytes").none(false), param_id,
      py::arg("scheme") = py::none());
  cls.def("add_memory", &add_memory, py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("address"),
          py::arg("nbytes"), py::arg("owner"), param_id, "Row-major memory that `owner` keeps alive.");
  cls.def("add_strided", &add_strided, py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("address"),
          py::arg("item_bytes"), py::arg("array_shape"), py::arg("byte_strides"), py::arg("owner"), param_id,
          py::arg("sign_bytes") = 0, py::arg("negate") = false, py::arg("conjugate") = false,
          "Memory that the writer gathers into row-major order while it writes.");
  cls.def("add_deferred", &add_deferred, py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("produce"),
          param_id, "Bytes that produce() returns when they are written.");
  cls.def("add_quantized", &add_quantized, py::keep_alive<1, 3>(), py::arg("name"), py::arg("reader"),
          py::arg("tensor"), param_id, "An unchanged copy of a quantized tensor of another file.");
  cls.def("add_batch", &add_batch, py::arg("names"), py::arg("batch"), py::arg("add_other") = py::none(),
          py::arg("param_ids") = py::none(),
          "All values of a batch, in their order. Calls add_other(i) for each that is left to Python.");
  cls.def("set_metadata", &set_metadata, py::arg("metadata"));
  cls.def(
      "describe_as",
      [](SharedWriter& writer, const Reader& reader, const std::string& format) {
        return describe_as(reader, format_named(format), writer.to_change());
      },
      py::arg("reader"), py::arg("format"),
      "Takes the metadata and the scalars that a conversion of a file keeps. Returns the keys of the metadata that the "
      "format cannot hold.");
  cls.def(
      "tensors", [](const SharedWriter& writer) { return rows_of(writer.contents()); },
      "(name, dtype, shape, nbytes) of each tensor, in the order of addition.");
  cls.def("set_typed_metadata", &set_typed_metadata, py::arg("metadata"));
  cls.def("set_scalar", &set_scalar, py::arg("name"), py::arg("value"), py::kw_only(), py::arg("unsigned") = false);
}

void bind_writing(WriterClass& cls) {
  const auto durable = py::arg("durable") = true;
  const auto overwrite = py::arg("overwrite") = true;
  const auto checksums = py::arg("checksums") = false;
  const auto burn = py::arg("burn") = "";
  const auto progress = py::arg("progress") = py::none();
  cls.def("write_file", &write_file, py::arg("path"), py::arg("format"), py::kw_only(), durable, overwrite, checksums,
          burn, progress);
  cls.def("write_shards", &write_shards, py::arg("index"), py::arg("max_shard_bytes"), py::kw_only(), durable,
          overwrite, checksums, progress, "Returns the names of the shards.");
  cls.def("write_file_or_shards", &write_file_or_shards, py::arg("path"), py::arg("max_shard_bytes"), py::kw_only(),
          durable, overwrite, checksums, progress, "Returns the names of the shards; an empty list for a single file.");
  cls.def("write_bytes", &write_bytes, py::arg("format"), py::kw_only(), checksums, burn);
}

}  // namespace

py::list rows_of(const FileContents& contents) {
  py::list rows;
  for (const NewTensor& tensor : contents.tensors()) {
    py::tuple shape(tensor.shape.size());
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) shape[i] = py::int_(tensor.shape[i]);
    rows.append(py::make_tuple(to_str(tensor.name), to_str(name_of(tensor.dtype)), shape, tensor.bytes->size()));
  }
  return rows;
}

Format format_named(const std::string& name) {
  for (const FormatSpec* spec : all_formats()) {
    if (spec->is_writable() && spec->name == name) return spec->id;
  }
  throw Error(ErrorCode::kInvalidArgument, "there is no format '" + name + "' to write");
}

void init_writer(py::module_& m) {
  WriterClass cls(m, "Writer", "What shall be in a file.",
                  collectable<SharedWriter, &SharedWriter::visit, &SharedWriter::clear>());
  cls.def(py::init<>());
  bind_contents(cls);
  bind_writing(cls);
}

}  // namespace weightstore::python
