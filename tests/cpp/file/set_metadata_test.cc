// New metadata of a file: the tensors stay, whatever the system can copy, and whatever fails the old file or the new
// one is there, whole.

#include <cerrno>
#include <string>
#include <vector>

#include "check.h"
#include "directory_listing.h"
#include "every_fault.h"
#include "test_files.h"
#include "weightstore/checksum.h"
#include "weightstore/convert.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

using namespace weightstore;
using test_files::TempDir;

namespace {

constexpr std::size_t kLarge = 2'500'001;  // the header of a smaller file is not padded

std::vector<std::byte> numbers(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

void save(const std::filesystem::path& path, std::size_t large) {
  static const std::vector<std::byte> data = numbers(kLarge);
  Writer writer;
  writer.add("a", DType::kU8, {large}, ConstBytes(data).first(large));
  writer.add("b", DType::kU8, {5}, ConstBytes(data).first(5));
  writer.add("none", DType::kF32, {0}, {});
  writer.set_metadata("old", "value");
  WriteOptions options;
  options.checksums = true;
  options.durable = false;
  writer.write_file(path, options);
}

void change(const std::filesystem::path& path) {
  TextMap changed;
  changed.add("new", "entry");
  const std::string removed[] = {"old"};
  WriteOptions options;
  options.durable = false;
  set_file_metadata(path, changed, removed, options);
}

// Whether the metadata is new; the tensors are as they were.
bool is_changed(const std::filesystem::path& path) {
  ReadOptions read;
  read.verify = Verify::kFull;
  const Reader reader = Reader::open(path, read);
  CHECK_EQ(reader.table().size(), 3u);
  const bool has_new = reader.table().metadata().find("new").has_value();
  CHECK(has_new != reader.table().metadata().find("old").has_value());
  return has_new;
}

TEST(metadata_changes_and_tensors_stay) {
  const TempDir dir;
  for (const char* name : {"m.safetensors", "m.bpk"}) {
    for (const std::size_t size : {std::size_t{3}, kLarge}) {
      save(dir / name, size);
      change(dir / name);
      CHECK(is_changed(dir / name));
    }
  }
}

TEST(a_file_system_that_cannot_copy_gets_the_bytes_written) {
  const TempDir dir;
  for (const char* name : {"m.safetensors", "m.bpk"}) {
    for (const int error : {EXDEV, EINVAL, ENOSYS, EOPNOTSUPP}) {
      save(dir / name, kLarge);
      faulty::FaultyFileOps ops({.at = 1, .kind = faulty::Call::kCopy, .error = error});
      const io::FileOpsScope scope(ops);
      change(dir / name);
      CHECK_EQ(ops.injected(), 1u);
      CHECK(is_changed(dir / name));
    }
  }
}

TEST(the_old_file_or_the_new_one_is_there_after_every_fault) {
  const TempDir dir;
  for (const int error : {EIO, ENOSPC, EINTR, faulty::kShort}) {
    save(dir / "m.safetensors", 3);
    const auto operation = [&](io::FileOps& ops) {
      const io::FileOpsScope scope(ops);
      change(dir / "m.safetensors");
    };
    const auto check = [&](bool succeeded) {
      if (succeeded) CHECK(is_changed(dir / "m.safetensors"));
      is_changed(dir / "m.safetensors");
      CHECK_EQ(directory_listing::names_in(dir.path()).size(), 1u);
      save(dir / "m.safetensors", 3);
    };
    CHECK(faulty::for_every_fault(error, operation, check) > 5);
  }
}

TEST(what_cannot_be_changed_is_refused) {
  const TempDir dir;
  save(dir / "m.safetensors", 3);
  const auto refused = [&](const TextMap& changed, std::vector<std::string> removed) {
    try {
      set_file_metadata(dir / "m.safetensors", changed, removed);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kInvalidArgument && !is_changed(dir / "m.safetensors");
    }
    return false;
  };
  CHECK(refused({}, {"not there"}));
  CHECK(refused({}, {std::string(kChecksumKey)}));
}

}  // namespace
