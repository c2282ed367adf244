#include <memory>
#include <string_view>
#include <utility>

#include "formats/pytorch/config.h"
#include "formats/pytorch/container.h"
#include "formats/pytorch/flatten.h"
#include "formats/pytorch/globals.h"
#include "formats/pytorch/tensors.h"
#include "weightstore/error.h"
#include "weightstore/pytorch.h"

namespace weightstore::pytorch {
namespace {

struct Opened {
  std::unique_ptr<Container> container;
  PickleTree tree;
};

Opened open(const ByteSource& source, const Limits& limits, const Options& options,
            const std::shared_ptr<MemoryBudget>& memory) {
  auto container = open_container(source, limits, memory);
  const ConstBytes pickle = container->pickle();
  const std::uint64_t offset = container->pickle_offset();
  Opened opened{std::move(container),
                PickleTree::parse(pickle, TorchGlobals(options.opaque), {limits.pytorch_depth, memory}, offset)};
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
  const auto memory = std::make_shared<MemoryBudget>(source->size(), limits.pytorch_memory_bytes);
  // What is left is for the checksums, which are read when the table is there.
  const MemoryLease checksums(*memory, kChecksumMemory * source->size());
  const Opened opened = open(*source, limits, options, memory);
  TensorPlacer placer(std::move(source), opened.container->big_endian(), *memory);
  Flattener flattener(opened.tree, *opened.container, [&](std::string_view name, Node tensor) {
    try {
      placer.place(name, read_tensor(opened.tree, *opened.container, tensor, limits));
    } catch (Error& error) {
      error.in_tensor(shown_name(name));
      throw;
    }
  });
  flattener.run();
  return placer.finish();
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
    const Opened opened =
        open(source, limits, options, std::make_shared<MemoryBudget>(source.size(), limits.pytorch_memory_bytes));
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
