#include "codec/pickle_vm.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/little_endian.h"
#include "base/utf8.h"
#include "codec/pickle_check.h"
#include "codec/pickle_ops.h"
#include "weightstore/error.h"

namespace weightstore {

// The stack machine. Values are nodes of the tree; the stack, the memo and containers hold their numbers. Every
// operand is checked before it is used: enough of them above the last mark, of a kind that the instruction works on.
class PickleMachine {
 public:
  using Node = PickleTree::Node;

  // `tree` has nothing but its constants. `offset` is always that of the instruction at hand.
  PickleMachine(ConstBytes bytes, const PickleGlobals& globals, PickleTree& tree, std::size_t& offset)
      : scanner_(bytes),
        globals_(globals),
        size_(bytes.size()),
        offset_(offset),
        tree_(tree),
        stack_(tree.memory()),
        marks_(tree.memory()),
        memo_(tree.memory()) {
    tree_.bytes_ = reinterpret_cast<const char*>(bytes.data());
  }

  void run() {
    PickleInstruction instruction;
    for (bool first = true;; first = false) {
      if (!scanner_.next(instruction)) fail("the pickle ends before its STOP");
      offset_ = instruction.offset;
      if (first != (instruction.op == PickleOp::kProto)) {
        fail(first ? "the pickle does not begin with its protocol, 2 or later" : "a second protocol number");
      }
      if (instruction.op == PickleOp::kStop) break;
      execute(instruction);
    }
    if (stack_.size() != 1 || !marks_.empty()) fail("the pickle stops with unused values");
    tree_.root_ = stack_.back();
    tree_.length_ = scanner_.position();
  }

 private:
  static constexpr std::size_t kMemoGaps = 1024;

  [[noreturn]] void fail(std::string message) const { throw Error(ErrorCode::kCorrupt, std::move(message)); }

  Node add(PickleKind kind, std::size_t length, std::uint32_t low, std::uint32_t high) {
    return tree_.add(kind, length, low, high);
  }
  Node add_wide(PickleKind kind, std::uint64_t bits) {
    return add(kind, 0, static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32));
  }
  Node add_int(std::int64_t n) { return add_wide(PickleKind::kInt, static_cast<std::uint64_t>(n)); }
  Node add_view(PickleKind kind, std::string_view view) { return add(kind, view.size(), place(view), 0); }
  Node add_container(PickleKind kind) { return add(kind, 0, PickleTree::kNoNode, PickleTree::kNoNode); }

  std::uint32_t place(std::string_view view) const { return static_cast<std::uint32_t>(view.data() - tree_.bytes_); }

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void need(std::size_t count) const {
    if (stack_.size() - floor() < count) fail("an instruction lacks its operands");
  }
  Node pop() {
    need(1);
    const Node node = stack_.back();
    stack_.pop_back();
    return node;
  }
  Node top() const {
    need(1);
    return stack_.back();
  }
  void push(Node node) { stack_.push_back(node); }

  // Values above the last mark; the mark is taken away, the values are still on the stack.
  std::span<const Node> above_mark() {
    if (marks_.empty()) fail("an instruction lacks its MARK");
    const std::size_t begin = marks_.back();
    marks_.pop_back();
    return std::span(stack_).subspan(begin);
  }

  Node text(std::string_view view) {
    if (!is_utf8(view)) fail("text that is not UTF-8");
    return add_view(PickleKind::kText, view);
  }

  Node long_integer(std::string_view digits) {
    if (digits.size() > 8) return add_view(PickleKind::kBigInt, digits);
    std::uint64_t n = load_little_endian(digits);
    if (!digits.empty() && (digits.back() & 0x80) != 0 && digits.size() < 8)
      n |= ~std::uint64_t{0} << 8 * digits.size();
    return add_wide(PickleKind::kInt, n);
  }

  Node tuple(std::span<const Node> items) {
    if (items.empty()) return PickleTree::kEmptyTuple;
    const auto begin = static_cast<std::uint32_t>(tree_.pool_.size());
    for (const Node item : items) tree_.pool_.add(item);
    return add(PickleKind::kTuple, items.size(), begin, 0);
  }

  void replace_top(std::size_t count) {
    need(count);
    const Node made = tuple(std::span(stack_).last(count));
    stack_.resize(stack_.size() - count);
    push(made);
  }

  Node global(std::string_view module, std::string_view name) {
    const PickleGlobal known = globals_.lookup(module, name);
    const std::uint32_t entry = tree_.globals_.add({{place(module), static_cast<std::uint32_t>(module.size())},
                                                    {place(name), static_cast<std::uint32_t>(name.size())},
                                                    known.uses});
    return add(PickleKind::kGlobal, 0, entry, known.id);
  }

  void stack_global() {
    const Node name = pop();
    const Node module = pop();
    if (tree_.kind(name) != PickleKind::kText || tree_.kind(module) != PickleKind::kText) {
      fail("STACK_GLOBAL of what is no text");
    }
    push(global(tree_.text(module), tree_.text(name)));
  }

  // What would be a call becomes an object that remembers it. A callable that is itself an object can only come of a
  // global that we know nothing about, and is as opaque.
  void call(Node callable, Node arguments, std::uint8_t use) {
    if (tree_.kind(arguments) != PickleKind::kTuple) fail("a call whose arguments are no tuple");
    std::uint8_t uses = 0;
    if (tree_.kind(callable) == PickleKind::kGlobal) {
      uses = static_cast<std::uint8_t>(tree_.globals_[tree_.nodes_[callable].low].uses);
    } else if (tree_.kind(callable) == PickleKind::kObject) {
      uses = tree_.objects_[tree_.nodes_[callable].low].uses == PickleGlobal::kAll ? PickleGlobal::kAll : 0;
    } else if (tree_.kind(callable) == PickleKind::kPersistent) {
      uses = PickleGlobal::kAll;  // a class by its source, which the reader of the tree refuses or passes over
    }
    if ((uses & use) == 0) fail("a call of " + describe(callable) + ", which is not to be called");
    const std::uint32_t object = tree_.objects_.add(
        {callable, arguments, PickleTree::kNoNode, PickleTree::kNoNode, PickleTree::kNoNode, 0, uses, false});
    push(add(PickleKind::kObject, 0, object, 0));
  }

  std::string describe(Node node) const {
    if (tree_.kind(node) != PickleKind::kGlobal) return "a value";
    return printable(tree_.global_module(node)) + "." + printable(tree_.global_name(node));
  }

  void build(Node state) {
    const Node target = top();
    if (tree_.kind(target) != PickleKind::kObject) fail("BUILD on what is no object");
    PickleTree::Object& object = tree_.objects_[tree_.nodes_[target].low];
    if ((object.uses & PickleGlobal::kState) == 0)
      fail("BUILD on " + describe(object.callable) + ", which has no state");
    if (object.state != PickleTree::kNoNode) fail("BUILD twice on one object");
    object.state = state;
  }

  // Appends to a list, set, dict or object. A run that ends where the pool does is extended in place.
  void extend(Node target, std::span<const Node> items, PickleKind kind, std::uint8_t use) {
    PickleTree::Cell& cell = tree_.nodes_[target];
    std::uint32_t* first = &cell.low;
    std::uint32_t* last = &cell.high;
    if (cell.kind() == PickleKind::kObject) {
      PickleTree::Object& object = tree_.objects_[cell.low];
      const bool mapping = use == PickleGlobal::kMapping;
      if ((object.uses & use) == 0 || (object.count != 0 && object.mapping != mapping)) {
        fail("items for " + describe(object.callable) + ", which does not take them");
      }
      object.mapping = mapping;
      object.count += static_cast<std::uint32_t>(items.size());
      first = &object.first;
      last = &object.last;
    } else if (cell.kind() == kind) {
      cell.head += static_cast<std::uint32_t>(items.size());
    } else {
      fail("items for a value that does not take them");
    }
    if (items.empty()) return;
    const auto begin = static_cast<std::uint32_t>(tree_.pool_.size());
    for (const Node item : items) tree_.pool_.add(item);
    const auto count = static_cast<std::uint32_t>(items.size());
    if (*last != PickleTree::kNoNode && tree_.chunks_[*last].begin + tree_.chunks_[*last].count == begin) {
      tree_.chunks_[*last].count += count;
      return;
    }
    const std::uint32_t chunk = tree_.chunks_.add({begin, count, PickleTree::kNoNode});
    (*last == PickleTree::kNoNode ? *first : tree_.chunks_[*last].next) = chunk;
    *last = chunk;
  }

  void extend_above_mark(PickleKind kind, std::uint8_t use) {
    const std::span<const Node> items = above_mark();
    if (kind == PickleKind::kDict && items.size() % 2 != 0) fail("SETITEMS with a key that has no value");
    const std::size_t end = stack_.size() - items.size();
    if (end == floor()) fail("an instruction lacks its operands");
    extend(stack_[end - 1], items, kind, use);
    stack_.resize(end);
  }

  void extend_by(std::size_t count, PickleKind kind, std::uint8_t use) {
    need(count + 1);
    const auto items = std::span<const Node>(stack_).last(count);
    extend(stack_[stack_.size() - count - 1], items, kind, use);
    stack_.resize(stack_.size() - count);
  }

  // Picklers number the memo upwards, so that more than a few gaps in all can only be there to cost memory: the memo
  // does not grow faster than the pickle fills it.
  void put(std::uint64_t index) {
    const Node value = top();
    if (index >= memo_filled_ + kMemoGaps) {
      throw Error(ErrorCode::kLimit, "memo entry " + std::to_string(index) + " where only " +
                                         std::to_string(memo_filled_) + " were made; " + std::to_string(kMemoGaps) +
                                         " may be left out");
    }
    if (index >= memo_.size()) memo_.resize(static_cast<std::size_t>(index) + 1, PickleTree::kNoNode);
    Node& entry = memo_[static_cast<std::size_t>(index)];
    if (entry == PickleTree::kNoNode) ++memo_filled_;
    entry = value;
  }

  void get(std::uint64_t index) {
    if (index >= memo_.size() || memo_[static_cast<std::size_t>(index)] == PickleTree::kNoNode) {
      fail("memo entry " + std::to_string(index) + " was never made");
    }
    push(memo_[static_cast<std::size_t>(index)]);
  }

  void new_object_ex() {
    need(3);
    const Node keywords = pop();
    const Node arguments = pop();
    const Node both[] = {arguments, keywords};
    call(pop(), tuple(both), PickleGlobal::kNew);
  }

  void execute(const PickleInstruction& in);

  PickleScanner scanner_;
  const PickleGlobals& globals_;
  const std::size_t size_;
  std::size_t& offset_;
  PickleTree& tree_;
  ChargedVector<Node> stack_;
  ChargedVector<std::uint32_t> marks_;  // no stack is longer than a pickle
  ChargedVector<Node> memo_;
  std::size_t memo_filled_ = 0;  // entries that are there; MEMOIZE takes this number, as in Python
};

void PickleMachine::execute(const PickleInstruction& in) {
  using enum PickleOp;
  switch (in.op) {
    case kProto:
      if (in.argument[0] < 2 || in.argument[0] > 5) {
        throw Error(
            ErrorCode::kUnsupported,
            "pickle protocol " + std::to_string(static_cast<unsigned char>(in.argument[0])) + "; 2 to 5 are read");
      }
      return;
    case kFrame:
      if (load_little_endian(in.argument) > size_ - scanner_.position()) fail("a frame that reaches beyond the pickle");
      return;
    case kMark:
      return marks_.push_back(static_cast<std::uint32_t>(stack_.size()));
    case kStop:
      return;
    case kNone:
      return push(PickleTree::kNone);
    case kNewTrue:
      return push(PickleTree::kTrue);
    case kNewFalse:
      return push(PickleTree::kFalse);
    case kBinInt:
      return push(add_int(static_cast<std::int32_t>(load_little_endian(in.argument))));
    case kBinInt1:
      return push(PickleTree::kSmallInts + static_cast<unsigned char>(in.argument[0]));
    case kBinInt2:
      return push(add_int(static_cast<std::int64_t>(load_little_endian(in.argument))));
    case kLong1:
    case kLong4:
      return push(long_integer(in.argument));
    case kBinFloat:  // eight bytes, big-endian
      return push(add_wide(PickleKind::kFloat, __builtin_bswap64(load_little_endian(in.argument))));
    case kBinUnicode:
    case kShortBinUnicode:
    case kBinUnicode8:
      return push(text(in.argument));
    case kBinString:
    case kShortBinString:
      return push(add_view(is_utf8(in.argument) ? PickleKind::kText : PickleKind::kBytes, in.argument));
    case kBinBytes:
    case kShortBinBytes:
    case kBinBytes8:
    case kByteArray8:
      return push(add_view(PickleKind::kBytes, in.argument));
    case kEmptyTuple:
      return push(PickleTree::kEmptyTuple);
    case kEmptyList:
      return push(add_container(PickleKind::kList));
    case kEmptyDict:
      return push(add_container(PickleKind::kDict));
    case kEmptySet:
      return push(add_container(PickleKind::kSet));
    case kTuple1:
      return replace_top(1);
    case kTuple2:
      return replace_top(2);
    case kTuple3:
      return replace_top(3);
    case kTuple:
      return replace_top(above_mark().size());
    case kFrozenSet: {
      const Node set = add_container(PickleKind::kFrozenSet);
      const std::span<const Node> items = above_mark();
      extend(set, items, PickleKind::kFrozenSet, PickleGlobal::kList);
      stack_.resize(stack_.size() - items.size());
      return push(set);
    }
    case kAppend:
      return extend_by(1, PickleKind::kList, PickleGlobal::kList);
    case kAppends:
      return extend_above_mark(PickleKind::kList, PickleGlobal::kList);
    case kAddItems:
      return extend_above_mark(PickleKind::kSet, PickleGlobal::kList);
    case kSetItem:
      return extend_by(2, PickleKind::kDict, PickleGlobal::kMapping);
    case kSetItems:
      return extend_above_mark(PickleKind::kDict, PickleGlobal::kMapping);
    case kGlobal:
      if (!is_utf8(in.argument) || !is_utf8(in.name)) fail("a global whose name is not UTF-8");
      return push(global(in.argument, in.name));
    case kStackGlobal:
      return stack_global();
    case kReduce:
    case kNewObj: {
      const Node arguments = pop();
      return call(pop(), arguments, in.op == kReduce ? PickleGlobal::kCall : PickleGlobal::kNew);
    }
    case kNewObjEx:
      return new_object_ex();
    case kBuild:
      return build(pop());
    case kBinPersId:
      return push(add(PickleKind::kPersistent, 0, pop(), 0));
    case kBinPut:
    case kLongBinPut:
      return put(load_little_endian(in.argument));
    case kMemoize:
      return put(memo_filled_);
    case kBinGet:
    case kLongBinGet:
      return get(load_little_endian(in.argument));
  }
}

PickleParser::PickleParser(const PickleGlobals& globals, PickleLimits limits)
    : globals_(globals), max_depth_(std::min(limits.depth, PickleTree::kMaxDepth)), tree_(std::move(limits.memory)) {}

const PickleTree& PickleParser::parse(ConstBytes bytes, std::uint64_t first_offset) {
  if (bytes.size() > PickleTree::kMaxBytes) {
    throw Error(ErrorCode::kLimit, "a pickle of " + std::to_string(bytes.size()) + " bytes; the limit is " +
                                       std::to_string(PickleTree::kMaxBytes));
  }
  tree_.clear();
  std::size_t offset = 0;
  try {
    {
      // The check needs memory of its own, after the machine has given back its stack and its memo.
      PickleMachine machine(bytes, globals_, tree_, offset);
      machine.run();
    }
    PickleChecker(tree_, max_depth_).run();
    return tree_;
  } catch (Error& error) {
    error.at_offset(offset).shift_offset(first_offset);
    throw;
  }
}

PickleTree PickleTree::parse(ConstBytes bytes, const PickleGlobals& globals, const PickleLimits& limits,
                             std::uint64_t first_offset) {
  PickleLimits own = limits;
  if (own.memory == nullptr) own.memory = std::make_shared<MemoryBudget>(bytes.size());
  PickleParser parser(globals, std::move(own));
  parser.parse(bytes, first_offset);
  return std::move(parser.tree_);
}

}  // namespace weightstore
