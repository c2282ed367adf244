#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/pytorch/config.h"
#include "formats/pytorch/container.h"
#include "formats/pytorch/data_classes.h"
#include "formats/pytorch/flatten.h"
#include "formats/pytorch/globals.h"
#include "formats/pytorch/table_maker.h"
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
  const auto parse = [&] {
    try {
      return PickleTree::parse(pickle, TorchGlobals(options.opaque), {limits.pytorch_depth, memory}, offset);
    } catch (const Error& error) {
      if (container->is_rewritten()) throw Error(error.code(), error.message());
      throw;
    }
  };
  PickleTree tree = parse();
  Opened opened{std::move(container), std::move(tree)};
  if (opened.tree.length() != pickle.size()) {
    throw Error(ErrorCode::kCorrupt,
                std::to_string(pickle.size() - opened.tree.length()) + " bytes behind the pickle's STOP")
        .at_offset(offset + opened.tree.length());
  }
  check_calls(opened.tree);
  opened.container->bind(opened.tree, options);
  return opened;
}

// Finds how Python gets to the tensors of one name.
class NameSearch final : public FoundValues {
 public:
  NameSearch(const Opened& opened, std::string_view name)
      : name_(name), flattener_(opened.tree, *opened.container, *this) {}

  std::vector<std::string> run() {
    flattener_.run();
    return std::move(places_);
  }

  bool tensor(std::string_view name, Node) override {
    if (name == name_ && places_.size() < 2) places_.push_back(flattener_.subscripts());
    return true;
  }
  void left_out(std::string_view, std::string, std::string) override {}

 private:
  const std::string_view name_;
  Flattener flattener_;
  std::vector<std::string> places_;
};

[[noreturn]] void refuse_twice(const Opened& opened, const Error& error) {
  const std::vector<std::string> places = NameSearch(opened, error.tensor()).run();
  if (places.size() < 2) throw error;
  throw Error(ErrorCode::kCorrupt,
              "the name is given twice: by " + places[0] + " and by " + places[1] + " of the saved object")
      .in_tensor(error.tensor());
}

TensorTable read(std::shared_ptr<const ByteSource> source, const Limits& limits, const Options& options) {
  const auto memory = std::make_shared<MemoryBudget>(source->size(), limits.pytorch_memory_bytes);
  // What is left is for the checksums, which are read when the table is there.
  const MemoryLease checksums(*memory, kChecksumMemory * source->size());
  const Opened opened = open(*source, limits, options, memory);
  TableMaker maker(opened.tree, *opened.container, std::move(source), limits, options.opaque);
  Flattener(opened.tree, *opened.container, maker).run();
  try {
    return maker.finish();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorrupt) throw;
    refuse_twice(opened, error);
  }
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
