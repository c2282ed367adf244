// What a small .pt file can ask of its reader. Each of these would take minutes, or gigabytes, if the reader went over
// a shared part once for every reference to it.

#include <string>
#include <string_view>
#include <vector>

#include "check.h"
#include "pickle_parts.h"
#include "recorded_source.h"
#include "tar_files.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/pytorch.h"
#include "zip_files.h"

using namespace weightstore;
using namespace std::string_literals;
using namespace pickle_parts;
using test_files::source_of;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TensorTable read(const std::string& file, Opaque opaque = Opaque::kError) {
  return pytorch::read_table(source_of(file), {}, {opaque});
}

ErrorCode refusal(const std::string& file) { return CHECK_THROWS(Error, read(file)).code(); }

// Refused for the work, and not for the memory that it takes.
bool takes_too_many_steps(const std::string& file, Opaque opaque) {
  const Error error = CHECK_THROWS(Error, read(file, opaque));
  return error.code() == ErrorCode::kLimit && std::string_view(error.what()).find(" steps ") != std::string_view::npos;
}

// A module whose only tensor is a buffer that `left_out`, a set, says not to save. Needs "cm\nModule\n" as memo entry 1
// and a tensor as entry 0.
std::string module_without_tensors(const std::string& left_out) {
  return "h\1)\x81}(" + text("_parameters") + "}" + text("_buffers") + "}(" + text("b") + "h\0u"s +
         text("_non_persistent_buffers_set") + left_out + "ub";
}

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

// No tensor is found below the key, so that no name pays for repeating it.
TEST(one_long_key_above_many_modules_without_tensors) {
  const auto file = [](std::size_t modules) {
    const std::string module = module_without_tensors("\x8f(" + text("b") + "\x90");
    return list_file(remembered(tensor(), '\0') + remembered("cm\nModule\n", '\1') +
                     remembered(text(std::string(4 * kMiB, 'k')), '\2') + times(modules, "}h\2" + module + "s"));
  };
  CHECK_EQ(read(file(5), Opaque::kSkip).size(), 1u);
  CHECK(takes_too_many_steps(file(50'000), Opaque::kSkip));
}

TEST(long_texts_in_many_sets_of_buffers) {
  const auto file = [](std::size_t modules) {
    const std::string longest(4 * kMiB, 'k');
    return list_file(remembered(tensor(), '\0') + remembered("cm\nModule\n", '\1') +
                     remembered(text(longest + "0"), '\2') + remembered(text(longest + "1"), '\3') +
                     times(modules, module_without_tensors("\x8f(h\2h\3\x90")));
  };
  CHECK_EQ(read(file(5), Opaque::kSkip).size(), 6u);
  CHECK(takes_too_many_steps(file(50'000), Opaque::kSkip));
}

TEST(shared_shapes_of_very_many_dimensions) {
  const std::string shape = remembered("(" + times(60'000, "K\1") + "t", '\0');
  const std::string body = shape + times(20'000, tensor("h\0"s, "h\0"s));
  CHECK(refusal(list_file(body)) == ErrorCode::kLimit);
  CHECK_EQ(read(list_file(shape + times(2, tensor("h\0"s, "h\0"s)))).size(), 2u);
}

// Fewer dimensions, which the file's size pays for, are as many to go over.
TEST(shared_shapes_of_many_dimensions) {
  const auto file = [](std::size_t tensors) {
    return list_file(remembered("(" + times(100, "K\1") + "t", '\0') + times(tensors, tensor("h\0"s, "h\0"s)) +
                     remembered(tensor("h\0"s, "h\0"s), '\1'));
  };
  CHECK_EQ(read(file(100)).size(), 101u);
  const std::string arguments = "h\2K\0h\0h\0\x89h\3t"s;
  const std::string body =
      remembered("(" + times(100, "K\1") + "t", '\0') + remembered("ctorch._utils\n_rebuild_tensor_v2\n", '\1') +
      remembered("(" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + "K\4tQ", '\2') +
      remembered("}", '\3') + times(10'000, "h\1(" + arguments + "R");
  CHECK(takes_too_many_steps(list_file(body), Opaque::kSkip));
}

TEST(one_tensor_under_very_many_names) {
  const std::string row = remembered("](" + times(500, "h\0"s) + "e", '\1');
  const std::string file = list_file(remembered(tensor(), '\0') + row + times(10'000, "h\1") + times(kMiB, "]N"));
  CHECK(refusal(file) == ErrorCode::kLimit);
  // As many names as the file's size pays for.
  CHECK_EQ(
      read(list_file(remembered(tensor(), '\0') + row + times(99, "h\1") + text(std::string(500'000, 'x')))).size(),
      50'001u);
}

// A transposed tensor has a source of its own, of which its names need one.
TEST(a_tensor_of_many_names_is_read_once) {
  const std::string transposed = tensor("K\2K\2\x86"s, "K\1K\2\x86"s);
  const TensorTable table = read(list_file(remembered(transposed, '\0') + times(1000, "h\0"s)));
  CHECK_EQ(table.size(), 1001u);
  CHECK_EQ(table.sources().size(), 2u);
  for (std::size_t i = 0; i < table.size(); ++i) {
    CHECK_EQ(table.source_of(i), 1u);
    CHECK(table.shape(i) == Shape({2, 2}));
  }
}

TEST(objects_of_the_same_arguments_are_read_once) {
  const std::string transposed = tensor("K\2K\2\x86"s, "K\1K\2\x86"s);
  const std::size_t arguments = transposed.find("((");
  const std::string body = remembered(transposed.substr(0, arguments), '\0') +
                           remembered(transposed.substr(arguments, transposed.size() - arguments - 1), '\1') + "R" +
                           times(1000, "h\0h\1R"s);
  const TensorTable table = read(list_file(body));
  CHECK_EQ(table.size(), 1001u);
  CHECK_EQ(table.sources().size(), 2u);
  // Another function does not take them.
  CHECK(refusal(list_file(body + "ctorch._utils\n_rebuild_tensor\nh\1R")) == ErrorCode::kCorrupt);
}

TEST(many_parameters_of_a_long_chain) {
  const auto parameter = [](const std::string& of) { return "h\0("s + of + "\x89h\1tR"; };
  std::string chain =
      remembered("ctorch._utils\n_rebuild_parameter\n", '\0') + remembered("}", '\1') + remembered(tensor(), '\2');
  for (int i = 0; i < 50; ++i) chain += remembered(parameter("h\2"s), '\2');
  const std::string arguments = remembered("(h\2\x89h\1t"s, '\3');
  const TensorTable table = read(list_file(chain + "h\0"s + arguments + "R" + times(500'000, "h\0h\3R"s)));
  CHECK_EQ(table.size(), 500'052u);
  CHECK(table.shape(500'051) == Shape({4}));
}

// A DTensor is read from its attributes, among which its local part is looked for.
TEST(many_tensors_of_one_set_of_attributes) {
  const auto file = [](const std::string& local) {
    std::string state = "}(";
    for (int i = 0; i < 100'000; ++i) state += text(std::to_string(i)) + "N";
    state = remembered(state + local + "u", '\0');
    return list_file(tensor() + remembered("ctorch._tensor\n_rebuild_from_type_v2\n", '\1') +
                     remembered("ctorch._utils\n_rebuild_wrapper_subclass\n", '\2') +
                     remembered("ctorch\nTensor\n", '\3') + state + times(100'000, "h\1(h\2h\3)h\0tR"s));
  };
  const TensorTable found = read(file(text("_local_tensor") + tensor()), Opaque::kSkip);
  CHECK_EQ(found.size(), 100'002u);
  const TensorTable without = read(file(""), Opaque::kSkip);
  CHECK_EQ(without.size(), 1u);
  CHECK_EQ(without.left_out().size(), 100'000u);
  CHECK_EQ(without.left_out().front().reason, without.left_out().back().reason);
  CHECK_EQ(without.left_out().front().type, "torch.Tensor");
}

TEST(a_tensor_that_is_left_out_under_many_names_has_one_reason) {
  const std::string arguments = remembered("(N)N)t", '\1');
  const std::string sparse = remembered("ctorch._utils\n_rebuild_sparse_tensor\n", '\0') + arguments + "R";
  const TensorTable table =
      read(list_file(tensor() + sparse + "q\2" + times(10, "h\2"s) + times(10, "h\0h\1R"s)), Opaque::kSkip);
  CHECK_EQ(table.size(), 1u);
  // And the function, and the arguments, which are values of the list.
  CHECK_EQ(table.left_out().size(), 21u);
  for (const LeftOut& value : table.left_out()) CHECK(value.reason.starts_with("a sparse tensor"));
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

TEST(entries_of_a_tar_archive_are_read_together) {
  constexpr std::size_t kStorages = 10'000;
  std::string storages = "\x80\2J";
  zip_files::put(storages, kStorages, 4);
  storages += ".";
  for (std::size_t i = 0; i < kStorages; ++i) {
    storages += "\x80\2J";
    zip_files::put(storages, i, 4);
    storages += "Nctorch\nByteStorage\n\x87.";
    zip_files::put(storages, 1, 8);
    storages += static_cast<char>(i);
  }
  const auto source =
      std::make_shared<RecordedSource>(tar_files::torch_file("\x80\2}.", "\x80\2K\0."s, storages + "\x80\2]."));
  CHECK_EQ(pytorch::read_table(source).size(), 0u);
  CHECK(source->reads.size() < 50);
}

TEST(headers_of_small_records_are_read_together) {
  std::vector<zip_files::Record> records = {{"a/data.pkl", "\x80\2N."}, {"a/version", "3"}};
  for (int i = 0; i < 10'000; ++i) records.push_back({"a/data/" + std::to_string(i), std::string(16, 'x')});
  const auto source = std::make_shared<RecordedSource>(zip_files::archive(records));
  CHECK_EQ(pytorch::read_table(source).size(), 0u);
  CHECK(source->reads.size() < 50);
}

RUN_TESTS()
