#include <pybind11/stl.h>

#include <tuple>

#include "bindings.h"
#include "formats/registry.h"
#include "gil.h"
#include "objects/py_object.h"
#include "weightstore/convert.h"
#include "write_options.h"

namespace weightstore::python {

void init_convert(py::module_& m) {
  m.def(
      "burn_release", [](const std::string& version) { return std::string(name_of(burn_release(version))); },
      py::arg("version"), "The release that a version such as '0.22.1' belongs to: '0.22'.");
  m.def(
      "convert",
      [](const Reader& reader, const py::object& path, const std::string& format_name,
         std::optional<std::uint64_t> max_shard_bytes, bool durable, bool overwrite, bool checksums,
         const std::string& burn, const std::optional<std::string>& dtype, py::object progress) {
        const auto target = to_path(path);
        const Format format = format_named(format_name);
        auto options = write_options(durable, overwrite, checksums, burn, std::move(progress));
        options.order = TensorOrder::kAsAdded;
        const auto numbers = dtype ? std::optional(dtype_named(*dtype)) : std::nullopt;
        ReleaseGil nogil;
        const Conversion conversion = plan_conversion(reader, format, numbers);
        if (!options.burn) options.burn = conversion.burn;
        if (spec_of(format).is_index) {
          conversion.contents.write_shards(target, max_shard_bytes.value_or(0), options);
        } else if (max_shard_bytes) {
          conversion.contents.write_file_or_shards(target, *max_shard_bytes, options);
        } else {
          conversion.contents.write_file(target, format, options);
        }
        return std::make_tuple(conversion.dropped_param_ids, conversion.dropped_metadata, conversion.not_quantized);
      },
      py::arg("reader"), py::arg("path"), py::arg("format"), py::kw_only(), py::arg("max_shard_bytes") = py::none(),
      py::arg("durable") = true, py::arg("overwrite") = false, py::arg("checksums") = false, py::arg("burn") = "",
      py::arg("dtype") = py::none(), py::arg("progress") = py::none(),
      "Writes what `reader` holds. Returns how many param ids and which metadata the format could not take, and "
      "which matrices could not be quantized.");
  m.def(
      "plan_conversion",
      [](const Reader& reader, const std::string& format_name, const std::optional<std::string>& dtype) {
        const Format format = format_named(format_name);
        const auto numbers = dtype ? std::optional(dtype_named(*dtype)) : std::nullopt;
        const Conversion conversion = [&] {
          ReleaseGil nogil;
          return plan_conversion(reader, format, numbers);
        }();
        return rows_of(conversion.contents);
      },
      py::arg("reader"), py::arg("format"), py::arg("dtype") = py::none(),
      "(name, dtype, shape, nbytes) of each tensor that convert() would write, in this order.");
  m.def(
      "set_metadata",
      [](const py::object& path, const std::vector<std::pair<std::string, std::string>>& changed,
         const std::vector<std::string>& removed, bool durable, py::object progress) {
        const auto target = to_path(path);
        const auto options = write_options(durable, true, false, "", std::move(progress));
        TextMap map;
        for (const auto& [key, value] : changed) map.add(key, value);
        ReleaseGil nogil;
        set_file_metadata(target, map, removed, options);
      },
      py::arg("path"), py::arg("changed"), py::arg("removed"), py::kw_only(), py::arg("durable") = true,
      py::arg("progress") = py::none(), "Replaces a file by one with other metadata.");
}

}  // namespace weightstore::python
