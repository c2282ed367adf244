// Any bytes: a tree that ends where its STOP is and that can be walked, or an Error.

#include <cstddef>
#include <cstdint>
#include <string>

#include "codec/pickle_ops.h"
#include "codec/pickle_vm.h"
#include "formats/pytorch/config.h"
#include "formats/pytorch/globals.h"
#include "fuzzing.h"
#include "weightstore/error.h"

using namespace weightstore;

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
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  for (const Opaque opaque : {Opaque::kError, Opaque::kSkip}) {
    try {
      const PickleTree tree = PickleTree::parse(bytes, pytorch::TorchGlobals(opaque));
      require(tree.length() <= size && pickle_length(bytes) == tree.length());
      check_nodes(tree);
      pytorch::check_calls(tree);
      pytorch::to_value(tree, tree.root());
      pytorch::find_path(tree, tree.root(), "a.0.b");
    } catch (const Error& error) {
      require(expected(error));
    }
  }
  return 0;
}
