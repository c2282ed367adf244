#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "objects/py_progress.h"
#include "weightstore/error.h"
#include "weightstore/writer.h"

namespace weightstore::python {

// "0.20", "0.21" or "0.22"; "0.19" is written as "0.20", empty means the default.
inline BurnCompat burn_compat(const std::string& release) {
  if (release.empty() || release == "0.19" || release == "0.20") return BurnCompat::k020;
  if (release == "0.21") return BurnCompat::k021;
  if (release == "0.22") return BurnCompat::k022;
  throw Error(ErrorCode::kInvalidArgument, "burn is '" + release + "'; it is one of '0.20', '0.21' and '0.22'");
}

inline WriteOptions write_options(bool durable, bool overwrite, bool checksums, const std::string& burn,
                                  pybind11::object progress) {
  WriteOptions options;
  options.durable = durable;
  options.overwrite = overwrite;
  options.checksums = checksums;
  options.burn_compat = burn_compat(burn);
  options.progress = make_progress(std::move(progress));
  return options;
}

// The inverse of to_string(Format), for formats that can be written.
Format format_named(const std::string& name);

}  // namespace weightstore::python
