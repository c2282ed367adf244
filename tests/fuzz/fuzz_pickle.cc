// Any bytes: a tree that ends where its STOP is and that can be walked, or an Error.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "bounds.h"
#include "codec/pickle_ops.h"
#include "codec/pickle_vm.h"
#include "formats/pytorch/config.h"
#include "formats/pytorch/data_classes.h"
#include "formats/pytorch/globals.h"
#include "fuzzing.h"
#include "hex.h"
#include "weightstore/error.h"

using namespace std::literals;
using namespace weightstore;
using pytorch::to_value;

namespace {

// Every node is well-formed, whether the root leads to it or not; none is nested deeper than the limit.
void check_nodes(const PickleTree& tree) {
  require(tree.root() < tree.node_count());
  for (PickleTree::Node node = 0; node < tree.node_count(); ++node) {
    std::size_t items = 0;
    auto walk = tree.items(node);
    for (PickleTree::Node item; walk.next(item); ++items) require(item < tree.node_count());
    const PickleKind kind = tree.kind(node);
    if (kind >= PickleKind::kTuple && kind <= PickleKind::kSet) require(items == tree.count(node));
    if (kind == PickleKind::kDict) require(items % 2 == 0);
    if (kind == PickleKind::kObject) require(tree.kind(tree.arguments(node)) == PickleKind::kTuple);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The smallest pickles: a dict with an object in it, which leaves as much of the memo empty as a pickle may, and one
  // that is nested as deep as the limit.
  static const std::string smallest[] = {"\x80\2}q\0r\xFF\3\0\0r\0\4\0\0K\0ccollections\nOrderedDict\n)Rs."s,
                                         "\x80\2N" + std::string(PickleLimits().depth - 1, '\x85') + "."};
  // With room to spare: the budget of so small a file would end before the deep one is unfolded.
  static const auto roomy_tree = [](std::string_view pickle) {
    const PickleLimits limits{.memory = std::make_shared<MemoryBudget>(1 << 20)};
    return PickleTree::parse(bytes_of(pickle), pytorch::TorchGlobals(Opaque::kError), limits);
  };
  static const PickleTree trees[] = {roomy_tree(smallest[0]), roomy_tree(smallest[1])};
  static Bounds parsing("parse", "", [](std::string_view) {
    for (const std::string& pickle : smallest) roomy_tree(pickle);
  });
  static Bounds checking("check calls", "", [](std::string_view) {
    for (const PickleTree& tree : trees) pytorch::check_calls(tree);
  });
  static Bounds unfolding("unfold", "", [](std::string_view) {
    for (const PickleTree& tree : trees) to_value(tree, tree.root());
  });
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  for (const Opaque opaque : {Opaque::kError, Opaque::kSkip}) {
    try {
      const PickleTree tree =
          parsing.run(size, [&] { return PickleTree::parse(bytes, pytorch::TorchGlobals(opaque)); });
      require(tree.length() <= size && pickle_length(bytes) == tree.length());
      check_nodes(tree);
      checking.run(size, [&] { pytorch::check_calls(tree); });
      unfolding.run(size, [&] { return to_value(tree, tree.root()); });
      pytorch::find_path(tree, tree.root(), "a.0.b");
      break;
    } catch (const Error& error) {
      require(expected(error));
      if (error.code() != ErrorCode::kUnsupported) break;  // what kSkip might pass over
    }
  }
  return 0;
}
