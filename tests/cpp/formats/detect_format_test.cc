#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/format.h"
#include "zip_files.h"

using namespace weightstore;
using namespace std::string_literals;

namespace {

Format detected(std::string_view bytes) { return detect_format(*test_files::source_of(bytes)); }

// What an unsupported file is said to be.
std::string stranger(std::string_view bytes) {
  const Error error = CHECK_THROWS(Error, detected(bytes));
  CHECK(error.code() == ErrorCode::kUnsupported);
  return error.message();
}

bool says(const std::string& message, std::string_view what) { return message.find(what) != std::string::npos; }

}  // namespace

TEST(formats_by_structure) {
  CHECK(detected("\2\0\0\0\0\0\0\0{}"s) == Format::kSafetensors);
  CHECK(detected("\x08\0\0\0\0\0\0\0 \n\t\r{}  "s) == Format::kSafetensors);
  CHECK(detected("NRUB\1\0\0\0\0\0"s) == Format::kBurnpack);
  CHECK(detected("{\"weight_map\":{}}") == Format::kSafetensorsIndex);
  CHECK(detected(" {\n  \"metadata\": {") == Format::kSafetensorsIndex);
  CHECK(detected("{}") == Format::kSafetensorsIndex);
}

TEST(a_header_that_begins_with_much_space_is_safetensors) {
  // Padding in front, as page alignment makes it: the brace is behind what is looked at.
  std::string file = "\0\x10\0\0\0\0\0\0"s + std::string(4094, ' ') + "{}";
  CHECK(detected(file) == Format::kSafetensors);
}

TEST(a_length_may_look_like_any_signature) {
  const auto with_length = [](std::string_view prefix) { return std::string(prefix) + "{\"a\":1}"; };
  // A pickle's, gzip's and a ZIP's first bytes, as lengths of headers that were cut short: the reader says so.
  CHECK(detected(with_length("\x80\2\0\0\0\0\0\0"s)) == Format::kSafetensors);
  CHECK(detected(with_length("}q\0\0\0\0\0\0"s)) == Format::kSafetensors);
  CHECK(detected(with_length("(dp\0\0\0\0\0"s)) == Format::kSafetensors);
  CHECK(detected(with_length("\x1f\x8b\0\0\0\0\0\0"s)) == Format::kSafetensors);
  CHECK(detected(with_length("PK\3\4\0\0\0\0"s)) == Format::kSafetensors);
  CHECK(detected(with_length("\x80\2\0\0\0\0\0\0"s) + std::string(1000, ' ')) == Format::kSafetensors);
}

TEST(foreign_files_are_named_with_what_to_do) {
  CHECK(says(stranger("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"), "git lfs pull"));
  CHECK(says(stranger("<!DOCTYPE html><html>"), "HTML"));
  CHECK(says(stranger("\n <HTML lang=en>"), "HTML"));
  CHECK(says(stranger("<?xml version=\"1.0\"?><Error>"), "XML"));
  CHECK(says(stranger("PK\5\6"s + std::string(18, '\0')), "ZIP"));
  CHECK(says(stranger("\x89HDF\r\n\x1a\n"s), "HDF5"));
  CHECK(says(stranger("\x1f\x8b\x08\0abc"s), "gzip"));
  CHECK(says(stranger("\x28\xb5\x2f\xfd"s), "zstd"));
}

TEST(gguf_by_its_signature) {
  CHECK(detected("GGUF\3\0\0\0"s) == Format::kGguf);
  CHECK(detected("GGUF\0\0\0\3"s) == Format::kGguf);
  // As a length this is more than SafeTensors allows, whatever follows.
  CHECK(detected("GGUF\3\0\0\0{\"a\""s) == Format::kGguf);
}

TEST(files_of_torch_by_their_containers) {
  CHECK(detected(std::string(257, 'n') + "ustar" + std::string(250, '\0')) == Format::kPytorch);
  const std::string number = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s;
  CHECK(detected("\x80\2"s + number) == Format::kPytorch);
  CHECK(detected("\x80\4\x95\x0d\0\0\0\0\0\0\0"s + number) == Format::kPytorch);
  // Any other pickle: the reader says what it thinks of it.
  CHECK(detected("\x80\2"s + number.substr(0, 12)) == Format::kPytorch);
  CHECK(detected("\x80\2}q\0(X\1\0\0\0a"s) == Format::kPytorch);
  CHECK(detected("\x80\4\x95\0\0\0\0\0\0\0\0"s) == Format::kPytorch);
  // Protocols 0 and 1 have no number in front; a dict is recognised.
  CHECK(detected("(dp0\nVa\np1\nI1\ns.") == Format::kPytorch);
  CHECK(detected("}q\0X\1\0\0\0aq\1K\1s."s) == Format::kPytorch);
  CHECK(detected("ccollections\nOrderedDict\np0\n(tRp1\n.") == Format::kPytorch);
}

TEST(an_index_may_have_any_text_where_tar_has_its_signature) {
  const std::string key = "{\"" + std::string(255, 'n') + "ustar\": 1" + std::string(300, ' ') + "}";
  CHECK_EQ(key.substr(257, 5), "ustar");
  CHECK(detected(key) == Format::kSafetensorsIndex);
}

TEST(a_zip_archive_is_torchs_when_it_has_its_pickle) {
  using zip_files::archive;
  for (const bool zip64 : {false, true}) {
    CHECK(detected(archive({{"m/data.pkl", "x"}, {"m/version", "3"}}, zip64)) == Format::kPytorch);
    CHECK(detected(archive({{"m/version", "3"}, {"m/data.pkl", "x"}}, zip64)) == Format::kPytorch);
    const std::string other = stranger(archive({{"notes.txt", "x"}, {"data.pkl", "x"}, {"a/b/data.pkl", ""}}, zip64));
    CHECK(says(other, "ZIP archive of 3 records, the first of them 'notes.txt'"));
  }
  CHECK(says(stranger(archive({{"word/document.xml", "x"}})), "1 record, 'word/document.xml'"));
  CHECK(says(stranger(archive({{"\x1b[2J", "x"}})), "\\x1b[2J"));
}

TEST(files_of_numpy) {
  CHECK(detected("\x93NUMPY\1\0v\0"s) == Format::kNumpy);
  CHECK(detected(zip_files::archive({{"a.npy", "x"}})) == Format::kNumpy);
  CHECK(detected(zip_files::archive({{"notes.txt", "x"}, {"a.npy", "x"}})) == Format::kNumpy);
  CHECK(detected(zip_files::archive({{"a.npy", "x"}, {"m/data.pkl", "x"}})) == Format::kPytorch);
  CHECK(detected(zip_files::archive({{"a.npy", "x"}}).substr(0, 40)) == Format::kNumpy);
}

TEST(a_zip_archive_that_was_cut_short_is_what_its_first_record_says) {
  const std::string torch = zip_files::archive({{"m/data.pkl", "x"}, {"m/version", "3"}});
  const std::string other = zip_files::archive({{"notes.txt", "x"}, {"m/data.pkl", "x"}});
  for (std::size_t size = 1; size < torch.size(); ++size) {
    const bool has_name = size >= 30 + std::string_view("m/data.pkl").size();
    if (has_name) CHECK(detected(torch.substr(0, size)) == Format::kPytorch);
    if (!has_name && size >= 4) CHECK(says(stranger(torch.substr(0, size)), "cut short"));
  }
  for (std::size_t size = 39; size < other.size(); ++size) {
    CHECK(says(stranger(other.substr(0, size)), "its first record is 'notes.txt'"));
  }
}

TEST(anything_else_is_left_to_the_readers_words) {
  CHECK(detected("text") == Format::kSafetensors);
  CHECK(detected("\xFF") == Format::kSafetensors);
  CHECK(detected(std::string(1000, '\0')) == Format::kSafetensors);
  CHECK(detected("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}"s) == Format::kSafetensors);
  CHECK(detected("NRU") == Format::kSafetensors);
}

TEST(text_is_said_to_be_text) {
  CHECK(says(stranger("some text"), "a text file"));
  CHECK(says(stranger("key: value\r\n\tother: \xC3\xBC\n"), "a text file"));
  // The head ends inside a character.
  for (const char* filling : {"", "a", "ab", "abc"}) {
    std::string text = filling;
    while (text.size() < 2000) text += "\xF0\x9F\x98\x80";
    CHECK(says(stranger(text), "a text file"));
  }
  // Control characters and bytes that are no UTF-8 are no text.
  CHECK(!says(stranger("some text\x01"), "text"));
  CHECK(!says(stranger("some text\xFF and more"), "text"));
}

TEST(onnx_is_said_to_be_onnx) {
  CHECK(says(stranger("\x08\x07\x12\x07pytorch\x1a\x05"
                      "2.0.1:"s),
             "ONNX"));
  CHECK(says(stranger("\x08\x0a\x3a\x10"s + std::string(16, '\x7f')), "ONNX"));
}

TEST(bytes_of_no_format_are_said_to_be_that) {
  const std::string message = stranger("\x9f\x03\xAA\x10\xFF\xFF\xFF\xFF\xFF\x01\x02");
  CHECK(says(message, "none of the formats"));
  CHECK(says(message, "9f 03 aa 10"));
  CHECK(!says(message, "header"));
}

TEST(an_empty_file_is_said_to_be_empty) {
  const Error error = CHECK_THROWS(Error, detected(""));
  CHECK(error.code() == ErrorCode::kCorrupt);
  CHECK(says(error.message(), "empty"));
  CHECK_EQ(error.path(), "<memory>");
}

TEST(names_ask_for_formats) {
  CHECK(format_of_name("model.safetensors") == Format::kSafetensors);
  CHECK(format_of_name("MODEL.SAFETENSORS") == Format::kSafetensors);
  CHECK(format_of_name("a.b.Bpk") == Format::kBurnpack);
  for (const char* name :
       {"", "model", "model.pt", ".bpk", ".safetensors", "safetensors", "model.safetensors.index.json", "model.bpk "}) {
    CHECK(CHECK_THROWS(Error, format_of_name(name)).code() == ErrorCode::kInvalidArgument);
  }
  CHECK(says(CHECK_THROWS(Error, format_of_name("model.PTH")).message(), "reads but does not write; use "));
  CHECK(says(CHECK_THROWS(Error, format_of_name("model.txt")).message(), "cannot tell the format"));
}

TEST(names_promise_formats) {
  const std::vector<Format> all = {Format::kSafetensors, Format::kSafetensorsIndex, Format::kBurnpack, Format::kPytorch,
                                   Format::kNumpy};
  const std::vector<std::pair<const char*, Format>> names = {
      {"a/m.safetensors", Format::kSafetensors},
      {"M.SafeTensors", Format::kSafetensors},
      {"m.safetensors.index.json", Format::kSafetensorsIndex},
  };
  for (const auto& [name, promised] : names) {
    for (const Format content : all) {
      if (content == promised) {
        check_name(name, content);
        continue;
      }
      const Error error = CHECK_THROWS(Error, check_name(name, content));
      CHECK(error.code() == ErrorCode::kUnsupported && error.format() == promised);
      CHECK(says(error.message(), "a name that ends in"));
    }
  }
  for (const char* name :
       {"m.pt", "m.pth", "m.bin", "m.ckpt", "m", "", "m.json", "m.safetensors.tmp", "<memory>", "m.bpk"}) {
    for (const Format content : all) check_name(name, content);
  }
}

TEST(formats_have_names) {
  CHECK_EQ(to_string(Format::kSafetensors), "safetensors");
  CHECK_EQ(to_string(Format::kSafetensorsIndex), "safetensors index");
  CHECK_EQ(to_string(Format::kBurnpack), "burnpack");
  CHECK_EQ(to_string(Format::kPytorch), "pytorch");
  CHECK_EQ(to_string(Format::kNumpy), "numpy");
  CHECK_EQ(to_string(Format::kUnknown), "unknown");
}

RUN_TESTS()
