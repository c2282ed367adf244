#pragma once

// Renames and filters the tensors of an open file, for programs that use other names than the file does.
//
//   ws::NameHooks hooks;
//   hooks.keep = [](const ws::TensorInfo& tensor) { return tensor.name.starts_with("encoder."); };
//   hooks.rename = [](std::string_view name) { return std::string(name.substr(8)); };
//   const ws::Reader encoder = ws::Reader::open("model.safetensors").renamed(hooks);
//
// The result is an ordinary Reader. It views, reads and loads tensors by their new names, and convert_file() can write
// it.

#include <functional>
#include <string>
#include <string_view>

#include "weightstore/reader.h"
#include "weightstore/tensor.h"

namespace weightstore {

// Reader::renamed() calls the hooks for the tensors in the order of their data: `keep` for every tensor, `rename` for
// every tensor that is kept. An exception that a hook throws passes through renamed().
struct NameHooks {
  // True for a tensor to keep. `tensor` still has its name in the file. Null keeps all tensors.
  std::function<bool(const TensorInfo& tensor)> keep;
  // The new name of a tensor, given its name in the file. Null keeps all names.
  std::function<std::string(std::string_view name)> rename;
};

}  // namespace weightstore
