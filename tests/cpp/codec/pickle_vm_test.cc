#include "codec/pickle_vm.h"

#include <string>

#include "check.h"
#include "codec/pickle_ops.h"
#include "hex.h"
#include "weightstore/error.h"

using namespace weightstore;
using namespace std::string_literals;

namespace {

// Knows "m.call", which may be called, and "m.map", whose result takes items and state.
class Globals final : public PickleGlobals {
 public:
  PickleGlobal lookup(std::string_view module, std::string_view name) const override {
    if (module == "m" && name == "call") return {7, PickleGlobal::kCall};
    if (module == "m" && name == "map") return {8, PickleGlobal::kCall | PickleGlobal::kMapping | PickleGlobal::kState};
    throw Error(ErrorCode::kUnsupported, "unknown " + std::string(name));
  }
};

struct Parsed {
  std::string bytes;
  PickleTree tree;
  Parsed(std::string pickle) : bytes(std::move(pickle)), tree(PickleTree::parse(bytes_of(bytes), Globals())) {}
};

ErrorCode refusal(const std::string& pickle) { return CHECK_THROWS(Error, Parsed(pickle)).code(); }

// The tree as text, to be compared at a glance.
std::string show(const PickleTree& tree, PickleTree::Node node) {
  const auto list = [&](char open, char close) {
    std::string text(1, open);
    auto items = tree.items(node);
    for (PickleTree::Node item; items.next(item);) text += (text.size() > 1 ? "," : "") + show(tree, item);
    return text + close;
  };
  switch (tree.kind(node)) {
    case PickleKind::kNone:
      return "None";
    case PickleKind::kBool:
      return tree.boolean(node) ? "True" : "False";
    case PickleKind::kInt:
      return std::to_string(tree.integer(node));
    case PickleKind::kBigInt:
      return "big" + hex(tree.text(node));
    case PickleKind::kFloat:
      return check::show(tree.number(node));
    case PickleKind::kText:
      return "'" + std::string(tree.text(node)) + "'";
    case PickleKind::kBytes:
      return "b'" + hex(tree.text(node)) + "'";
    case PickleKind::kTuple:
      return list('(', ')');
    case PickleKind::kList:
      return list('[', ']');
    case PickleKind::kDict:
      return list('{', '}');
    case PickleKind::kSet:
    case PickleKind::kFrozenSet:
      return list('<', '>');
    case PickleKind::kGlobal:
      return std::string(tree.global_module(node)) + "." + std::string(tree.global_name(node));
    case PickleKind::kObject:
      return show(tree, tree.callable(node)) + show(tree, tree.arguments(node)) + list('{', '}') +
             (tree.state(node) ? "+" + show(tree, *tree.state(node)) : "");
    case PickleKind::kPersistent:
      return "@" + show(tree, tree.persistent_id(node));
  }
  return "?";
}

std::string parsed(const std::string& pickle) {
  const Parsed p(pickle);
  CHECK_EQ(p.tree.length(), pickle.size());
  CHECK(pickle_length(bytes_of(pickle)) == pickle.size());
  for (std::size_t n = 0; n < pickle.size(); ++n) {
    CHECK(!pickle_length(bytes_of(std::string_view(pickle).substr(0, n))));
    CHECK_THROWS(Error, Parsed(pickle.substr(0, n)));
  }
  return show(p.tree, p.tree.root());
}

}  // namespace

TEST(scalars) {
  CHECK_EQ(parsed("\x80\2N."s), "None");
  CHECK_EQ(parsed("\x80\2(\x88\x89K\xFFM\xFF\xFFJ\xFF\xFF\xFF\xFFt."s), "(True,False,255,65535,-1)");
  CHECK_EQ(parsed("\x80\2(\x8a\0\x8a\1\xFF\x8a\2\xFF\0\x8a\x08\0\0\0\0\0\0\0\x80t."s),
           "(0,-1,255,-9223372036854775808)");
  CHECK_EQ(parsed("\x80\2\x8a\x09\0\0\0\0\0\0\0\0\1."s), "big000000000000000001");
  CHECK_EQ(parsed("\x80\2G\x3f\xf8\0\0\0\0\0\0."s), "1.5");
  CHECK_EQ(parsed("\x80\2(X\1\0\0\0aU\1bT\1\0\0\0cU\1\xFFt."s), "('a','b','c',b'ff')");
  CHECK_EQ(parsed("\x80\4(\x8c\1a\x8d\1\0\0\0\0\0\0\0bC\1cB\1\0\0\0d\x8e\1\0\0\0\0\0\0\0e\x96\1\0\0\0\0\0\0\0ft."s),
           "('a','b',b'63',b'64',b'65',b'66')");
}

TEST(containers) {
  CHECK_EQ(parsed("\x80\2(])}t."s), "([],(),{})");
  CHECK_EQ(parsed("\x80\2](K\1K\2eK\3aN\x86."s), "([1,2,3],None)");
  CHECK_EQ(parsed("\x80\2}(K\1NK\2NuK\3Ns."s), "{1,None,2,None,3,None}");
  CHECK_EQ(parsed("\x80\4(\x8f(K\1\x90(K\2\x91t."s), "(<1>,<2>)");
  CHECK_EQ(parsed("\x80\2K\1K\2K\3\x87."s), "(1,2,3)");
}

TEST(containers_grow_while_others_do) {
  // Two lists in the memo, appended to in turn.
  CHECK_EQ(parsed("\x80\2(]q\0]q\1h\0K\1ah\1K\2ah\0K\3ah\1(K\4K\5et."s), "([1,3],[2,4,5],[1,3],[2,4,5],[1,3],[2,4,5])");
}

TEST(memo) {
  CHECK_EQ(parsed("\x80\2(Nq\0K\1r\1\0\0\0h\1j\0\0\0\0t."s), "(None,1,1,None)");
  CHECK_EQ(parsed("\x80\4(K\1\x94K\2\x94h\0h\1t."s), "(1,2,1,2)");
  CHECK(refusal("\x80\2h\0."s) == ErrorCode::kCorrupt);
  CHECK(refusal("\x80\2Nr\xFF\xFF\xFF\xFF."s) == ErrorCode::kLimit);
  // MEMOIZE takes the number of the entries that are there, as Python does, whatever their numbers are.
  CHECK_EQ(parsed("\x80\4(Nq\1K\7\x94h\1t."s), "(None,7,7)");
}

// A gap here and there is nothing, but gaps that add up are memory that no instruction fills.
TEST(the_memo_grows_no_faster_than_it_is_filled) {
  const auto put = [](std::uint32_t index) {
    std::string bytes = "r";
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(index >> 8 * i);
    return bytes;
  };
  CHECK_EQ(parsed("\x80\2N" + put(1023) + "."), "None");
  CHECK(refusal("\x80\2N" + put(1024) + ".") == ErrorCode::kLimit);
  CHECK(refusal("\x80\2N" + put(1023) + put(2047) + ".") == ErrorCode::kLimit);
  // The same entry again fills nothing.
  CHECK(refusal("\x80\2N" + put(0) + put(0) + put(1025) + ".") == ErrorCode::kLimit);
  CHECK_EQ(parsed("\x80\2N" + put(0) + put(1) + put(1025) + "."), "None");
}

TEST(frozen_sets_are_hashable) {
  CHECK_EQ(parsed("\x80\4}(K\1\x91Ns."s), "{<1>,None}");
  CHECK_EQ(parsed("\x80\4\x8f((K\1\x91\x90."s), "<<1>>");
  CHECK(refusal("\x80\4}\x8fNs."s) == ErrorCode::kCorrupt);
  CHECK(refusal("\x80\4(\x91(K\1\x90."s) == ErrorCode::kCorrupt);  // ADDITEMS on a frozen one
}

TEST(calls_are_remembered_and_not_made) {
  CHECK_EQ(parsed("\x80\2cm\ncall\nK\1\x85R."s), "m.call(1){}");
  CHECK_EQ(parsed("\x80\2cm\nmap\n)Rq\0(K\1K\2u}b."s), "m.map(){1,2}+{}");
  CHECK_EQ(parsed("\x80\4\x8c\1m\x8c\4call\x93)R."s), "m.call(){}");
  CHECK_EQ(parsed("\x80\2(K\5tQ."s), "@(5)");
  CHECK(refusal("\x80\2cos\nsystem\n."s) == ErrorCode::kUnsupported);
  CHECK(refusal("\x80\2cm\ncall\n)\x81."s) == ErrorCode::kCorrupt);  // NEWOBJ
  CHECK(refusal("\x80\2cm\ncall\n)R}b."s) == ErrorCode::kCorrupt);   // BUILD
  CHECK(refusal("\x80\2cm\ncall\n)RNNs."s) == ErrorCode::kCorrupt);  // SETITEM
  CHECK(refusal("\x80\2cm\nmap\n)RNa."s) == ErrorCode::kCorrupt);    // APPEND
  CHECK(refusal("\x80\2cm\nmap\n)R}b}b."s) == ErrorCode::kCorrupt);  // twice
  CHECK(refusal("\x80\2K\1)R."s) == ErrorCode::kCorrupt);
}

TEST(opcodes_of_no_use_are_refused) {
  for (const char op : "0123DEFILPSVdgilop\x82\x83\x84\x97\x98"s) {
    const std::string pickle = "\x80\2N"s + op + "1\n1\n....................";
    CHECK(refusal(pickle) == ErrorCode::kUnsupported);
  }
}

TEST(nothing_contains_itself_and_nothing_is_deep) {
  CHECK(refusal("\x80\2]q\0h\0a."s) == ErrorCode::kUnsupported);
  CHECK(refusal("\x80\2]q\0(h\0ta."s) == ErrorCode::kUnsupported);
  CHECK(refusal("\x80\2cm\nmap\n)Rq\0K\1h\0s."s) == ErrorCode::kUnsupported);
  const auto nested = [](std::size_t n) { return "\x80\2"s + std::string(n, '(') + "N" + std::string(n, 't') + "."; };
  CHECK_EQ(Parsed(nested(127)).tree.count(Parsed(nested(127)).tree.root()), 1u);
  CHECK(refusal(nested(128)) == ErrorCode::kLimit);
  CHECK(refusal(nested(100'000)) == ErrorCode::kLimit);
  // Deep by sharing: each level is in the memo before it is put into the next.
  std::string shared = "\x80\2(Nq\0"s;
  for (int i = 1; i < 200; ++i) shared += "h"s + static_cast<char>(i - 1) + "\x85q" + static_cast<char>(i);
  CHECK(refusal(shared + "t.") == ErrorCode::kLimit);
}

TEST(keys_are_checked) {
  CHECK(refusal("\x80\2}(K\1NK\1Nu."s) == ErrorCode::kCorrupt);
  CHECK(refusal("\x80\2}(K\1N\x88Nu."s) == ErrorCode::kCorrupt);
  CHECK(refusal("\x80\2}(K\1NG\x3f\xf0\0\0\0\0\0\0Nu."s) == ErrorCode::kCorrupt);
  CHECK(refusal("\x80\2}(NNNNu."s) == ErrorCode::kCorrupt);
  CHECK(refusal("\x80\2}]Ns."s) == ErrorCode::kCorrupt);
  CHECK_EQ(parsed("\x80\2}(K\1NU\0011NNN)Nu."s), "{1,None,'1',None,None,None,(),None}");
}

TEST(memory_is_charged_to_a_budget) {
  const std::string pickle = "\x80\2("s + std::string(100'000, 'N') + "t.";
  const Parsed many(pickle);
  CHECK_EQ(many.tree.count(many.tree.root()), 100'000u);
  const auto budget = [](std::uint64_t file_bytes) { return std::make_shared<MemoryBudget>(file_bytes); };
  const auto parse = [&](std::shared_ptr<MemoryBudget> memory) {
    return PickleTree::parse(bytes_of(pickle), Globals(), {.memory = std::move(memory)});
  };
  // A file that holds the pickle compressed.
  const Error error = CHECK_THROWS(Error, parse(budget(10'000)));
  CHECK(error.code() == ErrorCode::kLimit);
  CHECK(error.message().find("a file of 10000 bytes may take 256384") != std::string::npos);
  const auto enough = budget(pickle.size());
  {
    const PickleTree tree = parse(enough);
    CHECK(enough->used() >= 4 * 100'000u);
  }
  CHECK_EQ(enough->used(), 0u);
}

TEST(a_parser_forgets_the_pickle_before) {
  const Globals globals;
  PickleParser parser(globals, {.memory = std::make_shared<MemoryBudget>(10'000)});
  const std::string first = "\x80\2(]q\0M\1\1acm\ncall\n)Rt."s;
  const std::string second = "\x80\2(M\2\2]t."s;
  CHECK_EQ(show(parser.parse(bytes_of(first)), parser.parse(bytes_of(first)).root()), "([257],m.call(){})");
  CHECK_EQ(show(parser.parse(bytes_of(second)), parser.parse(bytes_of(second)).root()), "(514,[])");
  CHECK_THROWS(Error, parser.parse(bytes_of("\x80\2h\0."s)));
  CHECK_EQ(show(parser.parse(bytes_of(first)), parser.parse(bytes_of(first)).root()), "([257],m.call(){})");
}

TEST(errors_have_places) {
  const Error error = CHECK_THROWS(Error, PickleTree::parse(bytes_of("\x80\2NNcos\nsystem\n."s), Globals(), {}, 100));
  CHECK(error.offset() == 104u);
}

RUN_TESTS()
