// Whatever a .pt file says, reading it takes at most 24 times its size on disk and a constant - also to refuse it.

#include <cstdio>
#include <string>
#include <vector>

#include "check.h"
#include "counted_memory.h"
#include "deflate_runs.h"
#include "pickle_parts.h"
#include "tar_files.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/pytorch.h"
#include "weightstore/reader.h"
#include "zip_files.h"

using namespace weightstore;
using namespace std::string_literals;
using namespace pickle_parts;

namespace {

constexpr std::size_t kPerByte = 24;
constexpr std::size_t kConstant = 64u << 10;

template <class Read>
bool lawful(const std::string& what, const std::string& file, Read read) {
  const auto source = memory_source(test_files::as_bytes(file));
  bool accepted = true;
  const std::size_t peak = counted_memory::peak_of([&] {
    try {
      read(source);
    } catch (const Error& error) {
      accepted = false;
      CHECK(error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kLimit ||
            error.code() == ErrorCode::kUnsupported);
    }
  });
  if (peak > kPerByte * file.size() + kConstant) {
    std::printf("  %s: a file of %zu bytes took %zu, %.1f times as many\n", what.c_str(), file.size(), peak,
                static_cast<double>(peak) / static_cast<double>(file.size()));
  }
  CHECK(peak <= kPerByte * file.size() + kConstant);
  return accepted;
}

// Without the memory that is granted to small files which repeat themselves: the law must hold for each byte.
Limits tight() {
  Limits limits;
  limits.pytorch_memory_bytes = 16u << 10;
  return limits;
}

// Holds every way to read a file to the law. Says whether open() accepted it.
bool lawful(const std::string& what, const std::string& file) {
  bool accepted = false;
  for (const Opaque opaque : {Opaque::kError, Opaque::kSkip}) {
    ReadOptions options;
    options.opaque = opaque;
    options.verify = Verify::kLazy;
    options.limits = tight();
    accepted = lawful(what + ", open", file, [&](const auto& source) { Reader::open(source, options); });
    lawful(what + ", read_config", file,
           [&](const auto& source) { pytorch::read_config(*source, {}, tight(), {opaque}); });
  }
  return accepted;
}

// Files from a few hundred bytes on, to see the constant as well as the factor.
constexpr std::size_t kScales[] = {1, 30, 1000, 30'000, 300'000};

std::string put(std::uint32_t index) {
  std::string bytes = "r";
  zip_files::put(bytes, index, 4);
  return bytes;
}

std::string compressed_file(std::string_view head, std::string_view unit, std::size_t copies, std::string_view tail) {
  const deflate_runs::Stream stream(head, unit, copies, tail);
  return zip_files::archive({{"archive/data.pkl", stream.bytes(), true, stream.inflated_size()},
                             {"archive/data/0", std::string(16, '\0')},
                             {"archive/version", "3\n"}});
}

}  // namespace

TEST(the_smallest_file) {
  const std::string file = zip_files::archive({{"a/data.pkl", "\x80\2N."}, {"a/version", "3"}});
  const auto source = memory_source(test_files::as_bytes(file));
  const std::size_t opened = counted_memory::peak_of([&] { Reader::open(source); });
  const std::size_t config = counted_memory::peak_of([&] { pytorch::read_config(*source); });
  CHECK(opened < 24u << 10);
  CHECK(config < 24u << 10);
}

TEST(gaps_in_the_memo) {
  for (const std::size_t scale : kScales) {
    std::string pickle = "\x80\2N";
    for (std::uint32_t i = 0; i < scale; ++i) pickle += put(1024 * i + 1023);
    lawful("memo", zip_files::torch_file(pickle + "."));
    pickle = "\x80\2N" + put(1023);
    for (std::uint32_t i = 1; i < scale; ++i) pickle += put(i + 1023);
    CHECK(lawful("even memo", zip_files::torch_file(pickle + ".")));
  }
}

TEST(many_tensors_of_few_bytes) {
  // Each is a call with the same arguments: five bytes, or two for the same tensor under one more name.
  const std::string storage = "(" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + "K\4tQ";
  for (const std::string& strides : {"K\1\x85"s, "K\0\x85"s}) {  // as they lie in the file, or repeated
    const std::string arguments = "(" + storage + "K\0K\4\x85"s + strides + "\x89}t";
    // The arguments alone are no tensor, and hidden in a key.
    const std::string head =
        remembered("ctorch._utils\n_rebuild_tensor_v2\n", '\1') + "}" + remembered(arguments, '\2') + "Ns";
    for (const std::size_t scale : kScales) {
      const std::string row = remembered("](" + times(scale, "h\1h\2R") + "e", '\3');
      for (const std::size_t repeats : {0, 3, 100}) {
        const bool accepted = lawful("tensors", list_file(head + row + times(repeats, "h\3")));
        if (scale == 1 && repeats == 0) CHECK(accepted);
      }
    }
  }
}

TEST(compressed_pickles) {
  for (const std::size_t copies : {1, 10, 100, 1000, 20'000}) {
    for (const std::string& unit : {"N"s, ")"s, "]"s, "]N"s, "K\7"s, "(("s, "]\x94"s, "}\x94"s, "N\x85N"s, "h\0"s}) {
      const std::size_t copied = copies * (unit.size() == 3 ? 3 : 1);  // an end at a whole unit
      lawful("compressed " + unit, compressed_file("\x80\4(Nq\0"s, unit, copied, "t."));
    }
    // Text of one letter, under a name or as a name.
    const std::string length = "\x80\4\x8d"s;
    std::string count;
    zip_files::put(count, 258 * copies + 1, 8);
    lawful("compressed text", compressed_file(length + count, "a", copies, "."));
  }
  CHECK(lawful("compressed", compressed_file("\x80\4(", "K\7", 4, "t.")));
}

TEST(a_size_that_is_not_true) {
  for (const std::uint64_t size : {std::uint64_t{1} << 20, std::uint64_t{1} << 31}) {
    const std::string file = zip_files::archive({{"a/data.pkl", "\x4b\4\0"s, true, size}, {"a/version", "3"}});
    CHECK(!lawful("size", file));
  }
}

TEST(names_of_shared_keys) {
  for (const std::size_t scale : kScales) {
    std::string body = remembered(text(std::string(scale, 'k')), '\0') + remembered(tensor(), '\1');
    for (int depth = 0; depth < 100; ++depth) body += "}h\0"s;
    body += "h\1" + times(100, "s");
    lawful("keys", list_file(body));
  }
}

TEST(shapes_of_very_many_dimensions) {
  for (const std::size_t rank : {1, 100, 60'000}) {
    const std::string shape = remembered("(" + times(rank, "K\1") + "t", '\0');
    const std::string strides = remembered("(" + times(rank, "K\0"s) + "t", '\1');
    const std::string huge = remembered("(" + times(rank, "\x8a\7\xFF\xFF\xFF\xFF\xFF\xFF\xFF") + "t", '\2');
    for (const std::size_t count : {1, 5, 1000}) {
      lawful("shapes", list_file(shape + strides + times(count, tensor("h\0"s, "h\1"))));
      lawful("wide strides", list_file(shape + huge + times(count, tensor("h\0"s, "h\2"))));
    }
  }
}

TEST(values_one_by_one) {
  const std::string id = "(" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + "K\4";
  for (const std::size_t scale : kScales) {
    const std::pair<const char*, std::string> bodies[] = {
        {"stack", times(scale, "N")},
        {"marks", times(scale, "(")},
        {"memo", "N" + times(scale, "\x94")},
        {"lists", times(scale, "]")},
        {"tuples", times(scale, "N\x85")},
        {"remembered lists", times(scale, "]\x94")},
        {"nested", times(scale, "]]a")},
        {"one key", times(scale, "}NNs")},
        {"keys", "}(" + times(scale, "J\1\2\3\4N") + "u"},
        {"texts", times(scale, "\x8c\1a")},
        {"bytes", times(scale, "C\1a")},
        {"globals", times(scale, "ca\n\n")},
        {"objects", remembered("ccollections\nOrderedDict\n", '\0') + times(scale, "h\0)R"s)},
        {"runs of a list", remembered("]", '\0') + times(scale, "h\0Na"s)},
        {"storages", remembered(id + "t", '\0') + "Q" + times(scale, "h\0Q"s)},
        {"modules", remembered("cm\nM\n", '\0') + times(scale, "h\0)\x81}b"s)},
    };
    for (const auto& [what, body] : bodies) {
      lawful(what, list_file(body));
      lawful(what + " in a stream"s, list_stream(body));
    }
    lawful("storages in a stream", list_stream(remembered(id + "Nt", '\0') + "Q" + times(scale, "h\0Q"s)));
  }
}

TEST(archives_of_empty_records) {
  for (const std::size_t scale : {1, 100, 10'000}) {
    std::vector<zip_files::Record> records = {{"a/data.pkl", "\x80\2N."}, {"a/version", "3"}};
    for (std::size_t i = 0; i < scale; ++i) records.push_back({"a/data/" + std::to_string(i), "", false});
    CHECK(lawful("records", zip_files::archive(records)));
  }
}

TEST(tar_archives_of_empty_storages) {
  for (const std::size_t scale : {1, 100, 30'000}) {
    std::string storages = "\x80\2J";
    zip_files::put(storages, scale, 4);
    storages += ".";
    for (std::size_t i = 0; i < scale; ++i) {
      storages += "\x80\2J";
      zip_files::put(storages, i, 4);
      storages += "Nctorch\nByteStorage\n\x87.";
      zip_files::put(storages, 0, 8);
    }
    CHECK(lawful("tar", tar_files::torch_file("\x80\2}.", "\x80\2K\0."s, storages + "\x80\2].")));
  }
}

// A small file may repeat itself: one tensor under many names, or a compressed pickle beside little data.
TEST(small_files_that_repeat_themselves) {
  const std::string file = list_file(remembered(tensor(), '\1') + times(10'000, "h\1"));
  CHECK(!lawful("one tensor", file));
  const auto source = memory_source(test_files::as_bytes(file));
  std::size_t tensors = 0;
  const std::size_t peak = counted_memory::peak_of([&] { tensors = Reader::open(source).table().size(); });
  CHECK_EQ(tensors, 10'001u);
  CHECK(peak <= kPerByte * file.size() + Limits().pytorch_memory_bytes);

  const std::string packed = compressed_file("\x80\4(", "K\7", 1000, "t.");
  CHECK(!lawful("a tuple", packed));
  CHECK_EQ(Reader::open(memory_source(test_files::as_bytes(packed))).table().size(), 0u);
}

// The memory of one that repeats itself without end stops there, too.
TEST(small_files_that_repeat_themselves_without_end) {
  const std::string file = list_file(remembered(tensor(), '\1') + times(20'000, "h\1") +
                                     remembered("](" + times(20'000, "h\1") + "e", '\2') + times(10'000, "h\2"));
  const auto source = memory_source(test_files::as_bytes(file));
  const std::size_t peak = counted_memory::peak_of([&] {
    const Error error = CHECK_THROWS(Error, Reader::open(source));
    CHECK(error.code() == ErrorCode::kLimit);
  });
  CHECK(peak <= kPerByte * file.size() + Limits().pytorch_memory_bytes);
}

// What picklers really write is far from the limit, and is read.
TEST(honest_files) {
  CHECK(lawful("numbers", list_file(times(1'000'000, "K\7"))));
  const std::string numbers = list_file(times(1'000'000, "K\7"));
  const Value value = pytorch::read_config(*memory_source(test_files::as_bytes(numbers)));
  CHECK_EQ(value.get_if<Value::List>()->size(), 1'000'000u);

  // An optimizer's state without its tensors: dicts of a step, a rate and a pair, every one of them in the memo.
  std::string body;
  std::uint32_t entry = 0;
  const auto keep = [&](std::string_view part) { body += std::string(part) + put(entry++); };
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    keep("}");
    body += "(";
    keep(text("step"));
    body += "J";
    zip_files::put(body, i, 4);
    keep(text("lr"));
    body += "G?\xf0\1\2\3\4\5\6"s;
    keep(text("b"));
    keep("K\1K\2\x86");
    body += "u";
  }
  const std::string state = list_file(body);
  CHECK(lawful("state", state));
  CHECK_EQ(pytorch::read_config(*memory_source(test_files::as_bytes(state))).get_if<Value::List>()->size(), 100'000u);
  CHECK(lawful("flags", list_file(times(1'000'000, "\x88"))));
}

RUN_TESTS()
