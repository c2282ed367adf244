#include "weightstore/file_contents.h"

#include <utility>

#include "weightstore/error.h"

namespace weightstore {

void FileContents::add(NewTensor tensor) {
  if (tensor.bytes == nullptr) throw Error(ErrorCode::kInvalidArgument, "has no bytes to write").in_tensor(tensor.name);
  tensors_.push_back(std::move(tensor));
}

void FileContents::add(std::string name, DType dtype, Shape shape, ConstBytes bytes) {
  add({std::move(name), dtype, std::move(shape), resident_bytes(bytes)});
}

void FileContents::set_metadata(std::string_view key, std::string_view value) {
  TextMap updated;
  bool replaced = false;
  if (metadata_) {
    for (std::size_t i = 0; i < metadata_->size(); ++i) {
      const bool same = metadata_->key(i) == key;
      replaced |= same;
      updated.add(metadata_->key(i), same ? value : metadata_->value(i));
    }
  }
  if (!replaced) updated.add(key, value);
  metadata_ = std::move(updated);
}

void FileContents::set_metadata(const TextMap& metadata) { metadata_ = metadata; }

void FileContents::set_scalar(std::string_view name, Scalar value) {
  ScalarMap updated;
  for (std::size_t i = 0; i < scalars_.size(); ++i) {
    if (scalars_.name(i) != name) updated.add(scalars_.name(i), scalars_.value(i));
  }
  updated.add(name, value);
  updated.sort();
  scalars_ = std::move(updated);
}

void FileContents::set_scalars(ScalarMap scalars) {
  scalars_ = std::move(scalars);
  scalars_.sort();
}

}  // namespace weightstore
