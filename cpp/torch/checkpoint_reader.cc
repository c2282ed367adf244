#include "checkpoint_reader.h"

#include "tensor_bridge.h"

namespace weightstore::torch_bridge {

std::vector<std::string> CheckpointReader::list_tensor_names() const {
  const TensorTable& table = reader_.table();
  std::vector<std::string> names;
  names.reserve(table.size());
  for (const std::uint32_t tensor : table.by_name()) names.emplace_back(table.name(tensor));
  return names;
}

std::vector<std::int64_t> CheckpointReader::tensor_shape(const std::string& name) const {
  return sizes_of(reader_.table()[reader_.table().at(name)]);
}

std::int64_t CheckpointReader::tensor_dtype(const std::string& name) const {
  return static_cast<std::int64_t>(require_scalar_type(reader_.table()[reader_.table().at(name)]));
}

at::Tensor CheckpointReader::read_tensor(const std::string& name) const {
  return torch_bridge::read_tensor(reader_, reader_.table().at(name));
}

}  // namespace weightstore::torch_bridge
