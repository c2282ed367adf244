#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "objects/py_progress.h"
#include "weightstore/error.h"
#include "weightstore/writer.h"

namespace weightstore::python {

// A release such as "0.22" or "0.22.1".
inline BurnRelease burn_release(const std::string& version) {
  if (const auto release = burn_release_from_name(version)) return *release;
  throw Error(ErrorCode::kInvalidArgument,
              "burn is '" + version + "'; it is a release of Burn from '0.20' to '0.23', such as '0.22' or '0.22.1'");
}

// `burn` may be empty, for none.
inline WriteOptions write_options(bool durable, bool overwrite, bool checksums, const std::string& burn,
                                  pybind11::object progress) {
  WriteOptions options;
  options.durable = durable;
  options.overwrite = overwrite;
  options.checksums = checksums;
  if (!burn.empty()) options.burn = burn_release(burn);
  options.progress = make_progress(std::move(progress));
  return options;
}

// (name, dtype, shape, nbytes) of each tensor that shall be written.
pybind11::list rows_of(const FileContents& contents);

// The inverse of to_string(Format), for formats that can be written.
Format format_named(const std::string& name);

}  // namespace weightstore::python
