#include "checkpoint_reader.h"

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include "io/available_memory.h"
#include "last_error.h"
#include "tensor_bridge.h"

namespace weightstore::torch_bridge {
namespace {

MutableBytes bytes_of(at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

// Memory for `sizes` of a tensor, about to be filled. Throws Error(kMemory) when so much is not available.
at::Tensor new_tensor(const std::vector<std::int64_t>& sizes, const TensorInfo& info) {
  const at::TensorOptions options(require_scalar_type(info));
  const auto count = static_cast<std::uint64_t>(c10::multiply_integers(sizes));
  try {
    io::require_memory(count * options.dtype().itemsize());
  } catch (Error& error) {
    error.in_tensor(info.name);
    throw;
  }
  return at::empty(sizes, options);
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& path)
    : reader_(guarded([&] { return weightstore::CheckpointReader(path); })) {}

std::vector<std::string> CheckpointReader::list_tensor_names() const { return reader_.tensor_names(); }

std::vector<std::int64_t> CheckpointReader::tensor_shape(const std::string& name) const {
  return guarded([&] { return sizes_of(reader_.info(name)); });
}

std::int64_t CheckpointReader::tensor_dtype(const std::string& name) const {
  return guarded([&] { return static_cast<std::int64_t>(require_scalar_type(reader_.info(name))); });
}

std::vector<std::vector<std::int64_t>> CheckpointReader::tensor_slices(const std::string& name) const {
  return guarded([&] {
    std::vector<std::vector<std::int64_t>> blocks;
    for (const auto& block : reader_.blocks(name)) {
      blocks.push_back({static_cast<std::int64_t>(block.buckets.begin), static_cast<std::int64_t>(block.buckets.end),
                        static_cast<std::int64_t>(block.buckets.size), static_cast<std::int64_t>(block.rows)});
    }
    return blocks;
  });
}

at::Tensor CheckpointReader::read_tensor(const std::string& name) const {
  return guarded([&] {
    const TensorInfo info = reader_.info(name);
    at::Tensor out = new_tensor(sizes_of(info), info);
    reader_.read(name, bytes_of(out));
    return out;
  });
}

at::Tensor CheckpointReader::read_rows(const std::string& name, std::int64_t begin, std::int64_t end) const {
  return guarded([&] {
    const TensorInfo info = reader_.info(name);
    std::vector<std::int64_t> sizes = sizes_of(info);
    if (sizes.empty() || begin < 0 || begin > end || end > sizes.front()) {
      throw Error(ErrorCode::kInvalidArgument, "has no rows " + std::to_string(begin) + " to " + std::to_string(end))
          .in_tensor(name);
    }
    sizes.front() = end - begin;
    at::Tensor out = new_tensor(sizes, info);
    reader_.read_rows(name, static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end), bytes_of(out));
    return out;
  });
}

std::int64_t CheckpointReader::verify() const {
  return guarded([&] { return static_cast<std::int64_t>(reader_.verify()); });
}

}  // namespace weightstore::torch_bridge
