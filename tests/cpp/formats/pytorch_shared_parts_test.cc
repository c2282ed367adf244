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
  CHECK_EQ(read(list_file(shape + times(5, tensor("h\0"s, "h\0"s)))).size(), 5u);
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
