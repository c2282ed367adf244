#include <string>
#include <utility>

#include "formats/pytorch/budget.h"
#include "formats/pytorch/config.h"
#include "formats/pytorch/container.h"
#include "formats/pytorch/flatten.h"
#include "formats/pytorch/globals.h"
#include "formats/pytorch/tensors.h"
#include "weightstore/error.h"
#include "weightstore/pytorch.h"

namespace weightstore::pytorch {
namespace {

// Tensors may share the tuple that is their shape.
constexpr std::uint64_t kDimensions = 1u << 20;
constexpr std::uint64_t kDimensionsPerByte = 4;

struct Opened {
  std::unique_ptr<Container> container;
  PickleTree tree;
};

Opened open(const ByteSource& source, const Limits& limits, const Options& options) {
  Opened opened;
  opened.container = open_container(source, limits);
  const ConstBytes pickle = opened.container->pickle();
  const std::uint64_t offset = opened.container->pickle_offset();
  opened.tree = PickleTree::parse(pickle, TorchGlobals(options.opaque), {limits.pytorch_depth}, offset);
  if (opened.tree.length() != pickle.size()) {
    throw Error(ErrorCode::kCorrupt,
                std::to_string(pickle.size() - opened.tree.length()) + " bytes behind the pickle's STOP")
        .at_offset(offset + opened.tree.length());
  }
  check_calls(opened.tree);
  opened.container->bind(opened.tree, options);
  return opened;
}

TensorTable read(std::shared_ptr<const ByteSource> source, const Limits& limits, const Options& options) {
  const Opened opened = open(*source, limits, options);
  TensorTable table;
  table.add_source(source);
  TensorPlacer placer(table, std::move(source), opened.container->big_endian());
  Budget dimensions(kDimensions, kDimensionsPerByte, opened.tree.length());
  Flattener flattener(opened.tree, *opened.container, [&](const std::string& name, Node tensor) {
    try {
      const TensorLayout layout = read_tensor(opened.tree, *opened.container, tensor, limits);
      dimensions.spend(layout.shape.size());
      placer.place(name, layout);
    } catch (Error& error) {
      error.in_tensor(name);
      throw;
    }
  });
  flattener.run();
  table.finish();
  return table;
}

}  // namespace

TensorTable read_table(std::shared_ptr<const ByteSource> source, const Limits& limits, const Options& options) {
  try {
    return read(std::move(source), limits, options);
  } catch (Error& error) {
    error.of_format(Format::kPytorch);
    throw;
  }
}

Value read_config(const ByteSource& source, std::string_view key, const Limits& limits, const Options& options) {
  try {
    const Opened opened = open(source, limits, options);
    if (key.empty()) return to_value(opened.tree, opened.tree.root());
    const auto found = find_path(opened.tree, opened.tree.root(), key);
    if (found) return to_value(opened.tree, *found);
    throw Error(ErrorCode::kNotFound, "the file has no key '" + printable(key) + "'");
  } catch (Error& error) {
    error.of_format(Format::kPytorch).in_file(source.name());
    throw;
  }
}

}  // namespace weightstore::pytorch
