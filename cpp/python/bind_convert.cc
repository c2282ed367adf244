// Reader to Writer, streaming: what a file holds in another format, or in the same one.

#include <pybind11/stl.h>

#include "bindings.h"
#include "py_object.h"
#include "weightstore/reader.h"
#include "write_options.h"

namespace weightstore::python {

namespace {

// The type under which `format` holds the same bytes. Throws when it has none.
DType stored_type(const TensorInfo& info, Format format) {
  const bool safetensors = format != Format::kBurnpack;
  if (safetensors && info.dtype == DType::kFlex32) return DType::kF32;
  if (safetensors && info.dtype == DType::kBoolU8) return DType::kBool;
  if (safetensors ? in_safetensors(info.dtype) : in_burnpack(info.dtype)) return info.dtype;
  throw Error(ErrorCode::kInvalidArgument, "its type " + std::string(name_of(info.dtype)) + " does not exist in " +
                                               (safetensors ? "SafeTensors" : "Burnpack") +
                                               "; convert without it, or change its type first")
      .in_tensor(info.name)
      .of_format(format);
}

struct Contents {
  Writer writer;
  std::size_t dropped_ids = 0;
};

Contents contents_of(const Reader& reader, Format format) {
  const TensorTable& table = reader.table();
  Contents contents;
  if (format != Format::kBurnpack && table.scalars().size() != 0) {
    throw Error(ErrorCode::kInvalidArgument, "the source has " + std::to_string(table.scalars().size()) +
                                                 " scalars ('" + std::string(table.scalars().name(0)) +
                                                 "' is one), which SafeTensors cannot hold; write a .bpk file instead")
        .of_format(format);
  }
  for (std::size_t i = 0; i < table.size(); ++i) {
    TensorInfo info = table[i];
    const DType dtype = stored_type(info, format);
    auto bytes = source_bytes(table.sources()[info.source], info.begin, info.nbytes());
    if (format != Format::kBurnpack && info.param_id) {
      ++contents.dropped_ids;
      info.param_id.reset();
    }
    contents.writer.add(
        {std::move(info.name), dtype, std::move(info.shape), std::move(bytes), info.param_id, info.quant});
  }
  if (table.has_metadata()) contents.writer.set_metadata(table.metadata());
  for (std::size_t i = 0; i < table.scalars().size(); ++i) {
    contents.writer.set_scalar(table.scalars().name(i), table.scalars().value(i));
  }
  return contents;
}

}  // namespace

void init_convert(py::module_& m) {
  m.def(
      "convert",
      [](const Reader& reader, const py::object& path, const std::string& format_name, std::uint64_t max_shard_bytes,
         bool durable, bool overwrite, py::object progress) {
        const auto target = to_path(path);
        const Format format = format_named(format_name);
        auto options = write_options(durable, overwrite, false, reader.table().dialect(), std::move(progress));
        options.order = TensorOrder::kAsAdded;
        py::gil_scoped_release nogil;
        const Contents contents = contents_of(reader, format);
        if (format == Format::kSafetensorsIndex) {
          contents.writer.write_shards(target, max_shard_bytes, options);
        } else {
          contents.writer.write_file(target, format, options);
        }
        return contents.dropped_ids;
      },
      py::arg("reader"), py::arg("path"), py::arg("format"), py::kw_only(), py::arg("max_shard_bytes") = 0,
      py::arg("durable") = true, py::arg("overwrite") = false, py::arg("progress") = py::none(),
      "Writes what `reader` holds; returns how many param ids the format could not take.");
}

}  // namespace weightstore::python
