#include "weightstore/pytorch.h"

#include <string>

#include "check.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "zip_files.h"

using namespace weightstore;
using namespace std::string_literals;
using test_files::as_text;
using test_files::source_of;

namespace {

std::string text(std::string_view t) { return "U"s + static_cast<char>(t.size()) + std::string(t); }

// A tensor of floats over storage 0, which has four.
std::string tensor(std::string_view offset, std::string_view size, std::string_view stride) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\nFloatStorage\n" + text("0") +
         text("cpu") + "K\4tQ" + std::string(offset) + "(" + std::string(size) + "t(" + std::string(stride) +
         "t\x89"
         "ccollections\nOrderedDict\n)RtR";
}

std::string file(const std::string& body, std::string_view byte_order = "little") {
  return zip_files::archive({{"m/data.pkl", "\x80\2" + body + "."},
                             {"m/byteorder", std::string(byte_order)},
                             {"m/data/0", "AAAABBBBCCCCDDDD"},
                             {"m/version", "3\n"}});
}

std::string bytes_of_tensor(const TensorTable& table, std::string_view name) {
  const std::size_t i = table.at(name);
  std::string out(static_cast<std::size_t>(table.nbytes(i)), '\0');
  table.sources()[table.source_of(i)]->read_at(table.begin(i), std::as_writable_bytes(std::span(out)));
  return out;
}

ErrorCode refusal(const std::string& bytes, Opaque opaque = Opaque::kSkip) {
  const Error error = CHECK_THROWS(Error, pytorch::read_table(source_of(bytes), {}, {opaque}));
  CHECK(error.format() == Format::kPytorch);
  return error.code();
}

}  // namespace

TEST(names_and_places) {
  const std::string body = "}(" + text("a") + tensor("K\0"s, "K\4", "K\1") + text("l") + "](" +
                           tensor("K\2", "K\1K\2", "K\7K\1") + "K\5e" + "K\3" + tensor("K\1", "", "") + "u";
  const TensorTable table = pytorch::read_table(source_of(file(body)));
  CHECK_EQ(table.size(), 3u);
  CHECK_EQ(table.sources().size(), 1u);
  CHECK_EQ(bytes_of_tensor(table, "a"), "AAAABBBBCCCCDDDD");
  CHECK_EQ(bytes_of_tensor(table, "l.0"), "CCCCDDDD");
  CHECK_EQ(bytes_of_tensor(table, "3"), "BBBB");
  CHECK(table.shape(table.at("l.0")) == (Shape{1, 2}));
  CHECK(table.dtype(0) == DType::kF32);
}

TEST(a_bare_tensor) {
  CHECK_EQ(bytes_of_tensor(pytorch::read_table(source_of(file(tensor("K\0"s, "K\2", "K\1")))), "tensor"), "AAAABBBB");
}

TEST(what_does_not_lie_in_a_row_is_gathered) {
  const std::string body = "](" + tensor("K\0"s, "K\2K\2", "K\1K\2") + tensor("K\1", "K\3", "K\0"s) +
                           tensor("K\0"s, "K\2", "K\3") + tensor("K\0"s, "K\0K\5"s, "K\1K\1") + "e";
  const TensorTable table = pytorch::read_table(source_of(file(body)));
  CHECK_EQ(bytes_of_tensor(table, "0"), "AAAACCCCBBBBDDDD");
  CHECK_EQ(bytes_of_tensor(table, "1"), "BBBBBBBBBBBB");
  CHECK_EQ(bytes_of_tensor(table, "2"), "AAAADDDD");
  CHECK_EQ(bytes_of_tensor(table, "3"), "");
}

TEST(the_other_byte_order) {
  std::string big = file(tensor("K\0"s, "K\4", "K\1"), "big");
  const std::size_t at = big.find("AAAABBBB");
  big.replace(at, 8, "abcdefgh");
  const TensorTable table = pytorch::read_table(source_of(big));
  CHECK_EQ(bytes_of_tensor(table, "tensor"), "dcbahgfeCCCCDDDD");
  CHECK(refusal(file("}", "middle")) == ErrorCode::kCorrupt);
}

TEST(bounds) {
  for (const auto& [offset, size, stride] :
       {std::tuple("K\1"s, "K\4"s, "K\1"s), std::tuple("K\0"s, "K\5"s, "K\1"s), std::tuple("K\0"s, "K\2"s, "K\4"s),
        std::tuple("K\0"s, "K\4"s, ""s), std::tuple("J\xFF\xFF\xFF\xFF"s, "K\1"s, "K\1"s),
        std::tuple("N"s, "K\1"s, "K\1"s)}) {
    const Error error = CHECK_THROWS(Error, pytorch::read_table(source_of(file(tensor(offset, size, stride)))));
    CHECK(error.code() == ErrorCode::kCorrupt);
    CHECK_EQ(error.tensor(), "tensor");
  }
}

TEST(globals_stop_the_read_or_are_left_out) {
  const std::string object = "}(" + text("o") + "cmine\nThing\n)\x81}(" + text("x") + tensor("K\0"s, "K\1", "K\1") +
                             "ub" + text("t") + tensor("K\0"s, "K\1", "K\1") + "u";
  const Error error = CHECK_THROWS(Error, pytorch::read_table(source_of(file(object)), {}, {Opaque::kError}));
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(error.message().find("mine.Thing") != std::string::npos);
  const TensorTable table = pytorch::read_table(source_of(file(object)));
  CHECK_EQ(table.size(), 1u);
  CHECK_EQ(table.name(0), "t");
  CHECK_EQ(table.left_out().size(), 1u);
  CHECK_EQ(table.left_out()[0].name, "o");
  CHECK_EQ(table.left_out()[0].type, "mine.Thing");
  CHECK(CHECK_THROWS(Error, table.at("o")).code() == ErrorCode::kUnsupported);
  CHECK(CHECK_THROWS(Error, table.at("p")).code() == ErrorCode::kNotFound);
}

TEST(names_that_act_are_refused_whatever_the_options_say) {
  const std::string body = "](" + tensor("K\0"s, "K\1", "K\1");
  for (const char* name : {"os\nsystem\n",
                           "posix\nsystem\n",
                           "nt\nsystem\n",
                           "subprocess\nPopen\n",
                           "sys\nexit\n",
                           "shutil\nrmtree\n",
                           "socket\nsocket\n",
                           "ctypes\nCDLL\n",
                           "runpy\nrun_path\n",
                           "importlib\nimport_module\n",
                           "commands\ngetoutput\n",
                           "os.path\njoin\n",
                           "builtins\neval\n",
                           "__builtin__\nexec\n",
                           "builtins\ncompile\n",
                           "builtins\nopen\n",
                           "_io\nopen\n",
                           "builtins\n__import__\n",
                           "torch.serialization\nos.system\n",
                           "torch\nbuiltins.eval\n",
                           "mine\nx.sys.exit\n"}) {
    for (const Opaque opaque : {Opaque::kError, Opaque::kSkip}) {
      CHECK(refusal(file(body + "c" + name + "e"), opaque) == ErrorCode::kUnsupported);
    }
  }
  for (const char* name : {"osmosis\nsystem\n", "mine\neval\n", "builtins\ngetattr\n", "builtins\nevaluate\n"}) {
    CHECK_EQ(pytorch::read_table(source_of(file(body + "c" + name + "e"))).left_out().size(), 1u);
  }
}

TEST(what_is_shared_is_listed_once) {
  // 2^30 ways to one object.
  std::string body = "](" + tensor("K\0"s, "K\1", "K\1") + "cmine\nThing\n)\x81\x85q\1";
  for (int i = 0; i < 30; ++i) body += "h\1h\1\x86q\1";
  const TensorTable table = pytorch::read_table(source_of(file(body + "e")));
  CHECK_EQ(table.left_out().size(), 1u);
  CHECK_EQ(table.left_out()[0].name, "1.0");
}

TEST(arrays_of_numpy) {
  const std::string type = "cnumpy\ndtype\n" + text("f4") + "\x89\x88\x87R(K\3" + text(">") + "NNNNNK\0tb"s;
  const auto array = [&](const std::string& shape, const std::string& bytes) {
    return "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\1b\x87R(K\1("s + shape + "t" + type +
           "\x88"
           "C" +
           static_cast<char>(bytes.size()) + bytes + "tb";
  };
  const TensorTable table = pytorch::read_table(source_of(file(array("K\2K\2", "abcdefghijklmnop"))));
  CHECK_EQ(bytes_of_tensor(table, "tensor"), "dcbalkjihgfeponm");
  CHECK(table.shape(0) == (Shape{2, 2}) && table.dtype(0) == DType::kF32);
  CHECK(refusal(file(array("K\2K\3", "abcdefghijklmnop"))) == ErrorCode::kCorrupt);
  CHECK(refusal(file(array("J\xFF\xFF\xFF\x7FJ\xFF\xFF\xFF\x7F", "abcd"))) == ErrorCode::kCorrupt);
}

TEST(a_table_bounds_what_is_unfolded) {
  const std::string huge = "\x8a\6\0\0\0\0\0\1"s;  // 2^40
  const Reader reader = Reader::open(source_of(file(tensor("K\0"s, huge, "K\0"s))));
  CHECK(reader.format() == Format::kPytorch);
  const std::size_t first = 0;
  CHECK(CHECK_THROWS(Error, reader.load({&first, 1})).code() == ErrorCode::kLimit);
  // A slice is bounded as the whole is; a small one is read.
  CHECK(CHECK_THROWS(Error, reader.check_expansion(std::uint64_t{1} << 31)).code() == ErrorCode::kLimit);
  ReadOptions options;
  options.limits.expanded_bytes = 4096;
  const Reader bounded = Reader::open(source_of(file(tensor("K\0"s, huge, "K\0"s))), options);
  std::string slice(40'000, '\0');
  const SliceDim dim{1, 1, slice.size() / 4};
  const Error refused = CHECK_THROWS(Error, bounded.read_slice(0, {&dim, 1}, std::as_writable_bytes(std::span(slice))));
  CHECK(refused.code() == ErrorCode::kLimit);
  CHECK_EQ(refused.tensor(), "tensor");
  reader.read_slice(0, {&dim, 1}, std::as_writable_bytes(std::span(slice)));
  CHECK_EQ(slice, std::string(slice.size(), 'A'));
  std::string some(10, '\0');
  reader.read_range(0, 3, std::as_writable_bytes(std::span(some)));
  CHECK_EQ(some, "AAAAAAAAAA");
}

TEST(checksums_of_storages) {
  const std::string good = file(tensor("K\0"s, "K\4", "K\1"));
  ReadOptions full;
  full.verify = Verify::kFull;
  CHECK_EQ(Reader::open(source_of(good), full).verify_all(), 1u);
  std::string bad = good;
  bad[bad.find("AAAA")] = 'a';
  CHECK(CHECK_THROWS(Error, Reader::open(source_of(bad), full)).code() == ErrorCode::kCorrupt);
  ReadOptions lazy;
  lazy.verify = Verify::kLazy;
  const Reader reader = Reader::open(source_of(bad), lazy);
  CHECK(CHECK_THROWS(Error, reader.view(0)).code() == ErrorCode::kCorrupt);
}

TEST(every_cut_is_refused) {
  const std::string whole = file(tensor("K\0"s, "K\4", "K\1"));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const Error error = CHECK_THROWS(Error, pytorch::read_table(source_of(std::string_view(whole).substr(0, n))));
    CHECK(error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kUnsupported);
  }
}

TEST(plain_data) {
  const std::string body = "}(" + text("a") + "](K\1\x88Ne" + text("t") + tensor("K\0"s, "K\4", "K\1") + "u";
  const Value value = pytorch::read_config(*source_of(file(body)));
  CHECK(*value.find("a") == Value(Value::List{Value(1), Value(true), Value()}));
  CHECK(*value.find("t") == Value());
  CHECK(pytorch::read_config(*source_of(file(body)), "a.0") == Value(1));
  CHECK(CHECK_THROWS(Error, pytorch::read_config(*source_of(file(body)), "b")).code() == ErrorCode::kNotFound);
}

RUN_TESTS()
