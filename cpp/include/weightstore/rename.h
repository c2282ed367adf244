#pragma once

// Other names for the tensors of a file, and fewer tensors: for programs that call things differently than the file.
//
//   ws::NameHooks hooks;
//   hooks.keep = [](const ws::TensorInfo& tensor) { return tensor.name.starts_with("encoder."); };
//   hooks.rename = [](std::string_view name) { return std::string(name.substr(8)); };
//   const ws::Reader encoder = ws::Reader::open("model.safetensors").renamed(hooks);
//
// What comes out is a Reader like any other: it views, reads and loads by the new names, and convert_file() writes it.

#include <functional>
#include <string>
#include <string_view>

#include "weightstore/reader.h"
#include "weightstore/tensor.h"

namespace weightstore {

// Called once for every tensor, in the order of the data, by Reader::renamed(); what they throw goes to its caller.
struct NameHooks {
  // Whether a tensor stays. It has the file's name here. Null: all of them stay.
  std::function<bool(const TensorInfo& tensor)> keep;
  // The new name of a tensor that stays. Null: the file's.
  std::function<std::string(std::string_view name)> rename;
};

}  // namespace weightstore
