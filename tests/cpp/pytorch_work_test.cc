// What a small .pt file can ask of its reader. Each of these would take minutes, or gigabytes, if the reader went over
// a shared part once for every reference to it.

#include <string>
#include <vector>

#include "check.h"
#include "counted_memory.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/pytorch.h"
#include "zip_files.h"

using namespace weightstore;
using namespace std::string_literals;
using test_files::source_of;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::string times(std::size_t count, std::string_view part) {
  std::string out;
  out.reserve(count * part.size());
  for (std::size_t i = 0; i < count; ++i) out += part;
  return out;
}

std::string text(std::string_view t) {
  std::string out = "X";
  zip_files::put(out, t.size(), 4);
  return out + std::string(t);
}

// Text as an entry of the memo, and nothing on the stack but what is in the list below it.
std::string remembered(std::string value, char entry) { return std::move(value) + "q" + entry; }

// A tensor of floats over storage 0; its size and strides as instructions.
std::string tensor(std::string_view size = "K\4\x85", std::string_view strides = "K\1\x85",
                   std::string_view key = "0") {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\nFloatStorage\n" + text(key) +
         text("cpu") + "K\4tQK\0"s + std::string(size) + std::string(strides) +
         "\x89"
         "ccollections\nOrderedDict\n)RtR";
}

// A list of everything that `body` leaves on the stack.
std::string list_file(const std::string& body) { return zip_files::torch_file("\x80\2](" + body + "e."); }

// The same list in a file of torch before 1.6, over a storage of four floats.
std::string list_stream(const std::string& body) {
  return "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\3.\x80\2}.\x80\2](" + body + "e.\x80\2](" +
         text("0") + "e.\4\0\0\0\0\0\0\0"s + std::string(16, '\0');
}

TensorTable read(const std::string& file, Opaque opaque = Opaque::kError) {
  return pytorch::read_table(source_of(file), {}, {opaque});
}

ErrorCode refusal(const std::string& file) { return CHECK_THROWS(Error, read(file)).code(); }

}  // namespace

TEST(many_dicts_made_of_one_list) {
  const std::string list = "](" + times(200'000, "h\1") + "e";
  const std::string body = remembered("ccollections\nOrderedDict\n", '\0') + remembered("NN\x86", '\1') +
                           remembered(list + "\x85", '\2') + times(200'000, "h\0h\2R"s);
  CHECK_EQ(read(list_file(body)).size(), 0u);
}

TEST(one_long_key_in_many_dicts) {
  const std::string key(4 * kMiB, 'k');
  const std::string keys = remembered(text(key + "0"), '\0') + remembered(text(key + "1"), '\1');
  CHECK_EQ(read(list_file(keys + times(200'000, "}(h\0Nh\1Nu"s))).size(), 0u);
  CHECK(refusal(list_file(keys + "}(h\0Nh\0Nu"s)) == ErrorCode::kCorrupt);
  CHECK(refusal(list_file(keys + "}(h\0N"s + text(key + "0") + "Nu")) == ErrorCode::kCorrupt);
}

TEST(long_keys_beside_tensors) {
  const std::string body =
      remembered(text(std::string(4 * kMiB, 'k')), '\0') + remembered(tensor(), '\1') + times(60'000, "}(h\0NK\1h\1u"s);
  const TensorTable table = read(list_file(body));
  CHECK_EQ(table.size(), 60'001u);
  CHECK_EQ(table.name(0), "1");
  CHECK_EQ(table.name(1), "2.1");
}

TEST(many_buffers_and_many_that_are_left_out) {
  std::string buffers = "}(";
  for (int i = 0; i < 60'000; ++i) buffers += text("b" + std::to_string(i)) + "h\0"s;
  const std::string state = "}(" + text("_parameters") + "}" + text("_buffers") + buffers + "u" +
                            text("_non_persistent_buffers_set") + "\x8f(" + remembered(text("b00000"), '\1') +
                            times(1'000'000, "h\1") + text("b7") + "\x90u";
  const TensorTable table =
      read(list_file(remembered(tensor(), '\0') + "cm\nModule\n)\x81" + state + "b"), Opaque::kSkip);
  CHECK_EQ(table.size(), 60'000u);
  CHECK(!table.find("1.b7"));
  CHECK(table.find("1.b8"));
}

TEST(many_modules_of_one_state) {
  std::string state = "}(";
  for (int i = 0; i < 200'000; ++i) state += text(std::to_string(i)) + "N";
  state += text("_parameters") + "}" + "u";
  const std::string body = remembered(state, '\0') + "cm\nModule\nq\1" + times(200'000, "h\1)\x81h\0b"s) + tensor();
  CHECK_EQ(read(list_file(body), Opaque::kSkip).size(), 1u);
}

TEST(shared_shapes_of_very_many_dimensions) {
  const std::string shape = remembered("(" + times(60'000, "K\1") + "t", '\0');
  const std::string body = shape + times(20'000, tensor("h\0"s, "h\0"s));
  CHECK(refusal(list_file(body)) == ErrorCode::kLimit);
  CHECK_EQ(read(list_file(shape + times(10, tensor("h\0"s, "h\0"s)))).size(), 10u);
}

TEST(one_tensor_under_very_many_names) {
  const std::string row = remembered("](" + times(500, "h\0"s) + "e", '\1');
  const std::string file = list_file(remembered(tensor(), '\0') + row + times(10'000, "h\1") + times(kMiB, "]N"));
  const std::size_t peak = counted_memory::peak_of([&] { CHECK(refusal(file) == ErrorCode::kLimit); });
  CHECK(peak < 32 * file.size());
  CHECK_EQ(read(list_file(remembered(tensor(), '\0') + row + times(99, "h\1"))).size(), 50'001u);
}

TEST(keys_of_storages_are_short) {
  for (const std::size_t length : {20, 1000}) {
    const std::string key(length, '0');
    const std::string file = zip_files::archive({{"m/data.pkl", "\x80\2" + tensor("K\4\x85", "K\1\x85", key) + "."},
                                                 {"m/data/" + key, std::string(16, '\0')},
                                                 {"m/version", "3\n"}});
    if (length == 20) {
      CHECK_EQ(read(file).size(), 1u);
    } else {
      CHECK(refusal(file) == ErrorCode::kCorrupt);
    }
  }
}

// Every way to make much of few bytes, alone; whether the file is read or refused.
TEST(memory_is_a_small_multiple_of_the_pickle) {
  const std::size_t many = 4 * kMiB;
  const std::string tensors = remembered(tensor(), '\0') + remembered("](" + times(1000, "h\0"s) + "e", '\1');
  const std::string bodies[] = {
      times(many, "N"),                                                             // the stack
      times(many, "("),                                                             // marks
      "N" + times(many, "\x94"),                                                    // the memo
      times(many, "]"),                                                             // nodes
      times(many / 2, "]N"),                                                        //
      times(many / 2, "]("),                                                        //
      times(many / 2, "]\x94"),                                                     //
      times(many / 3, "N\x85N"),                                                    // tuples
      "}(" + times(many / 2, "NN") + "u",                                           // the keys of a dict
      "}(" + times(many / 6, "J\1\2\3\4N") + "u",                                   //
      remembered("ccollections\nOrderedDict\n", '\0') + times(many / 4, "h\0)R"s),  // objects
      remembered("ccollections\nOrderedDict\n", '\0') + times(many / 9, "h\0)R(NNuN"s),
      remembered("]", '\0') + times(many / 4, "h\0Na"s),     // runs of a list
      remembered(tensor(), '\0') + times(many / 2, "h\0"s),  // names of one tensor
      tensors + times(many / 2, "h\1"),
      times(many / 120, tensor()),
  };
  std::vector<std::string> files;
  for (const std::string& body : bodies) files.push_back(list_file(body));
  const std::string id = "(" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + "K\4";
  files.push_back(list_file(remembered(id + "t", '\0') + "Q" + times(many / 3, "h\0Q"s)));  // storages
  files.push_back(list_stream(remembered(id + "Nt", '\0') + "Q" + times(many / 3, "h\0Q"s)));
  for (const std::string& file : files) {
    const std::size_t peak = counted_memory::peak_of([&] {
      try {
        read(file);
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kLimit ||
              error.code() == ErrorCode::kUnsupported);
      }
    });
    CHECK(peak < 24 * file.size());
  }
}

// One-byte values are shared by the machine, so that a list of them has far more items than the pickle has values.
TEST(long_lists_of_small_numbers_are_plain_data) {
  const Value value = pytorch::read_config(*source_of(list_file(times(2'000'000, "K\7"))));
  CHECK_EQ(value.get_if<Value::List>()->size(), 2'000'000u);
}

RUN_TESTS()
