#include <pybind11/operators.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <span>

#include "bindings.h"
#include "formats/burnpack/quant_cbor.h"
#include "gil.h"
#include "memory.h"
#include "objects/py_object.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/transform.h"
#include "write_options.h"

namespace weightstore::python {

namespace {

template <class E>
E named(std::span<const std::string_view> names, const std::string& name, const char* what) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<E>(found - names.begin());
  std::string all;
  for (const std::string_view one : names) all += (all.empty() ? "'" : ", '") + std::string(one) + "'";
  throw Error(ErrorCode::kInvalidArgument, std::string(what) + " is '" + name + "'; it is one of " + all);
}

template <class E>
py::str name_in(std::span<const std::string_view> names, E value) {
  return to_str(names[static_cast<std::size_t>(value)]);
}

QuantScheme make_scheme(const std::string& value, const std::string& store, std::uint64_t packed_dim,
                        const std::string& mode, const std::optional<std::vector<std::uint8_t>>& block,
                        const std::string& scale, const std::optional<std::string>& tensor_scale,
                        const std::string& burn) {
  QuantScheme scheme;
  scheme.release = burn_release(burn);
  scheme.value = named<QuantValue>(burnpack::kQuantValues, value, "value");
  scheme.store = named<QuantStore>(burnpack::kQuantStores, store, "store");
  scheme.packed_dim = packed_dim;
  scheme.mode = named<QuantMode>(burnpack::kQuantModes, mode, "mode");
  const auto type = named<QuantParam>(burnpack::kQuantParams, scale, "scale");
  scheme.tensor_scale.reset();
  if (tensor_scale) scheme.tensor_scale = named<QuantParam>(burnpack::kQuantParams, *tensor_scale, "tensor_scale");
  if (block) {
    scheme.block = *block;
    scheme.block_scale = type;
  } else if (tensor_scale) {
    throw Error(ErrorCode::kInvalidArgument, "tensor_scale is for schemes with blocks; without them it is `scale`");
  } else if (type != QuantParam::kF32 || !traits_of(scheme.release).has_two_level_scales) {
    scheme.tensor_scale = type;  // one F32 scale is what no scale means since 0.22
  }
  if (const auto checked = as_release(scheme, scheme.release)) return *checked;
  throw Error(ErrorCode::kInvalidArgument,
              "Burn " + std::string(name_of(scheme.release)) + " has no scheme " + to_string(scheme));
}

py::tuple scales_of(const QuantScheme& scheme) {
  py::list types;
  if (scheme.block_scale) types.append(name_in<QuantParam>(burnpack::kQuantParams, *scheme.block_scale));
  if (scheme.tensor_scale || !scheme.block_scale) {
    types.append(name_in<QuantParam>(burnpack::kQuantParams, scheme.tensor_scale.value_or(QuantParam::kF32)));
  }
  return py::tuple(types);
}

py::object block_of(const QuantScheme& scheme) {
  if (!scheme.block_scale) return py::none();
  py::tuple sizes(scheme.block.size());
  for (std::size_t i = 0; i < scheme.block.size(); ++i) sizes[i] = py::int_(scheme.block[i]);
  return sizes;
}

QuantScheme for_burn(const QuantScheme& scheme, const std::string& burn) {
  if (const auto spelled = as_release(scheme, burn_release(burn))) return *spelled;
  throw Error(ErrorCode::kInvalidArgument, "Burn " + burn + " cannot express the scheme " + to_string(scheme));
}

// Any numbers of Burn's payload may be needed for a part of them.
void dequantize_scheme(const Reader& reader, std::size_t tensor, const QuantScheme& scheme, DType to,
                       std::uint64_t first, MutableBytes out) {
  std::vector<SharedMutableBytes> copy;
  const auto view = reader.view(tensor);
  const std::size_t one[] = {tensor};
  if (!view) copy = reader.load(one);
  const ConstBytes payload = view ? view->bytes : ConstBytes(copy[0].bytes);
  dequantize(payload, scheme, reader.table().shape(tensor), to, first, out);
}

// Reads only the blocks that have the numbers; a float is a block of one.
void dequantize_units(const Reader& reader, std::size_t tensor, DType to, std::uint64_t first, std::size_t count,
                      MutableBytes out) {
  const DType from = reader.table().dtype(tensor);
  const BlockSize unit = weightstore::block_of(from).value_or(BlockSize{1, bits_of(from) / 8});
  const std::uint64_t begin = first / unit.elements;
  const std::uint64_t end = (first + count + unit.elements - 1) / unit.elements;
  const std::uint64_t offset = begin * unit.bytes;
  const auto size = static_cast<std::size_t>((end - begin) * unit.bytes);
  std::optional<Memory> copy;
  const auto view = reader.view(tensor);
  if (!view) {
    copy.emplace(allocate_result(size));
    reader.read_range(tensor, offset, {copy->data(), copy->size()});
  }
  const ConstBytes units = view ? view->bytes.subspan(offset, size) : ConstBytes(copy->data(), copy->size());
  if (weightstore::block_of(from)) {
    dequantize(units, from, to, first - begin * unit.elements, out);
  } else {
    cast(units, from, to, out);
  }
}

Memory dequantize_tensor(const Reader& reader, std::size_t tensor, const std::optional<QuantScheme>& scheme,
                         const std::string& dtype, std::uint64_t first, std::size_t count) {
  const TensorTable& table = reader.table();
  if (tensor >= table.size()) throw py::index_error("no tensor has this number");
  const DType to = dtype_named(dtype);
  ReleaseGil nogil;
  try {
    std::uint64_t elements = 1;
    for (const std::uint64_t dimension : table.shape(tensor)) elements *= dimension;
    if (first > elements || count > elements - first) {
      throw Error(ErrorCode::kInvalidArgument, "these elements are not in the tensor");
    }
    if (!scheme && weightstore::block_of(table.dtype(tensor)) && !can_dequantize(table.dtype(tensor))) {
      throw Error(ErrorCode::kUnsupported,
                  std::string(name_of(table.dtype(tensor))) +
                      " is not dequantized by this library; .bytes() gives its bytes as stored");
    }
    Memory out = allocate_result(count * bits_of(to) / 8);
    if (scheme) {
      dequantize_scheme(reader, tensor, *scheme, to, first, {out.data(), out.size()});
    } else {
      dequantize_units(reader, tensor, to, first, count, {out.data(), out.size()});
    }
    return out;
  } catch (Error& error) {
    error.in_tensor(table.name(tensor)).in_file(table.sources()[table.source_of(tensor)]->name());
    error.of_format(reader.format());
    throw;
  }
}

}  // namespace

void init_quant(py::module_& m) {
  py::class_<QuantScheme>(
      m, "QuantScheme",
      "How a tensor of Burn is quantized.\n\n"
      "value: the type of the codes: Q8S, Q4S, Q2S, Q8F, Q4F, Q2F, E4M3, E5M2 or E2M1.\n"
      "store: Native, a byte a code; PackedU32, codes in words; PackedNative.\n"
      "packed_dim: the dimension that is packed, counted from the innermost one.\n"
      "block: the size of a block in the last dimensions; None for one scale of the whole tensor.\n"
      "scale: the type of the scales of the blocks, or of the tensor: F32, F16, BF16, UE8M0 or UE4M3.\n"
      "tensor_scale: the type of a scale of the whole tensor by which those of the blocks are multiplied.\n"
      "burn: the release of Burn whose rules say what the payload means.")
      .def(py::init(&make_scheme), py::arg("value") = "Q8S", py::kw_only(), py::arg("store") = "Native",
           py::arg("packed_dim") = 0, py::arg("mode") = "Symmetric", py::arg("block") = py::none(),
           py::arg("scale") = "F32", py::arg("tensor_scale") = py::none(),
           py::arg("burn") = std::string(name_of(kNewestStableBurn)))
      .def_property_readonly(
          "value", [](const QuantScheme& s) { return name_in(burnpack::kQuantValues, s.value); },
          "The type of the codes.")
      .def_property_readonly(
          "store", [](const QuantScheme& s) { return name_in(burnpack::kQuantStores, s.store); },
          "How the codes lie in memory.")
      .def_readonly("packed_dim", &QuantScheme::packed_dim,
                    "The dimension that is packed, counted from the innermost one.")
      .def_property_readonly(
          "mode", [](const QuantScheme& s) { return name_in(burnpack::kQuantModes, s.mode); },
          "Symmetric: zero is the code 0.")
      .def_property_readonly(
          "level", [](const QuantScheme& s) { return s.block_scale ? "Block" : "Tensor"; }, "Block or Tensor.")
      .def_property_readonly("block", &block_of,
                             "The size of a block in the last dimensions; None for the level Tensor.")
      .def_property_readonly("scales", &scales_of, "The types of the scales: of the blocks, then of the tensor.")
      .def_property_readonly(
          "burn", [](const QuantScheme& s) { return to_str(name_of(s.release)); },
          "The release of Burn whose rules hold.")
      .def("for_burn", &for_burn, py::arg("release"), "The same fields under the rules of another release.")
      .def(
          "payload_bytes", [](const QuantScheme& s, const Shape& shape) { return payload_bytes(s, shape); },
          py::arg("shape"), "The size of a tensor of this shape.")
      .def(py::self == py::self)
      .def("__hash__", [](const QuantScheme& s) { return py::hash(py::str(to_string(s))); })
      .def("__str__", [](const QuantScheme& s) { return to_string(s); })
      .def("__repr__", [](const QuantScheme& s) {
        return "<QuantScheme " + to_string(s) + ", Burn " + std::string(name_of(s.release)) + ">";
      });
  m.def("dequantize", &dequantize_tensor, py::arg("reader"), py::arg("tensor"), py::arg("scheme"), py::arg("dtype"),
        py::arg("first"), py::arg("count"), "`count` numbers from element `first` on, in new memory.");
}

}  // namespace weightstore::python
