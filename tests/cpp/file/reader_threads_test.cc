// Many threads through one Reader, doing everything it offers at once. What it proves it proves under ThreadSanitizer;
// without, that nobody gets another's bytes.

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

using namespace weightstore;
using test_files::as_bytes;
using test_files::as_text;

namespace {

constexpr std::size_t kTensors = 24;
constexpr unsigned kThreads = 8;

std::string data_of(std::size_t i) { return test_files::pattern(1000 + 137 * i, static_cast<std::uint32_t>(i)); }

void write_model(const std::filesystem::path& path, bool sharded) {
  std::vector<std::string> data;
  for (std::size_t i = 0; i < kTensors; ++i) data.push_back(data_of(i));
  Writer writer;
  for (std::size_t i = 0; i < kTensors; ++i)
    writer.add("t" + std::to_string(i), DType::kU8, {data[i].size()}, as_bytes(data[i]));
  WriteOptions options;
  options.checksums = true;
  options.durable = false;
  if (sharded) {
    writer.write_shards(path, 20'000, options);
  } else {
    writer.write_file(path, options);
  }
}

MutableBytes writable(std::string& text) { return {reinterpret_cast<std::byte*>(text.data()), text.size()}; }

// One of the ways to a tensor's bytes; false when they are not what was written.
bool visit(const Reader& reader, std::size_t i, unsigned way) {
  const std::string expected = data_of(i);
  const std::size_t tensor = reader.table().at("t" + std::to_string(i));
  std::string out(expected.size(), '?');
  switch (way) {
    case 0:
      reader.read(tensor, writable(out));
      return out == expected;
    case 1: {
      const auto view = reader.view(tensor);
      return !view || as_text(view->bytes) == expected;
    }
    case 2:
      return as_text(reader.load(std::vector{tensor, tensor})[1].bytes) == expected;
    case 3: {
      const auto view = reader.private_view(tensor);
      return !view || as_text(view->bytes) == expected;
    }
    case 4: {
      std::string part(expected.size() / 2, '?');
      const std::vector<SliceDim> reversed = {{expected.size() - 1, -2, part.size()}};
      reader.read_slice(tensor, reversed, writable(part));
      for (std::size_t k = 0; k < part.size(); ++k) {
        if (part[k] != expected[expected.size() - 1 - 2 * k]) return false;
      }
      return true;
    }
    case 5:
      reader.read_range(tensor, 0, writable(out));
      return out == expected;
    case 6: {
      const Reader copy = reader;
      return copy.table()[tensor].nbytes() == expected.size() && !copy.table().find("none");
    }
    default:
      return reader.verify_all() == kTensors;
  }
}

void hammer(const Reader& reader) {
  std::atomic<unsigned> failures = 0;
  std::vector<std::jthread> threads;
  for (unsigned worker = 0; worker < kThreads; ++worker) {
    threads.emplace_back([&, worker] {
      // Each thread begins elsewhere and with another way, so that first touches meet.
      for (unsigned step = 0; step < 2 * kTensors; ++step) {
        try {
          if (!visit(reader, (step + worker / 2) % kTensors, (step + worker) % 8)) ++failures;
        } catch (const std::exception&) {
          ++failures;
        }
      }
    });
  }
  threads.clear();
  CHECK_EQ(failures.load(), 0u);
}

}  // namespace

TEST(threads_share_a_file) {
  const test_files::TempDir dir;
  write_model(dir / "m.safetensors", false);
  for (const bool map : {true, false}) {
    for (const Verify verify : {Verify::kOff, Verify::kLazy, Verify::kFull}) {
      ReadOptions options;
      options.map = map;
      options.verify = verify;
      hammer(Reader::open(dir / "m.safetensors", options));
    }
  }
}

TEST(threads_share_a_set_of_shards) {
  const test_files::TempDir dir;
  write_model(dir / "m.safetensors.index.json", true);
  ReadOptions options;
  options.verify = Verify::kLazy;
  hammer(Reader::open(dir / "m.safetensors.index.json", options));
}

TEST(threads_agree_about_damage) {
  const test_files::TempDir dir;
  write_model(dir / "m.safetensors", false);
  std::string file = test_files::read_file(dir / "m.safetensors");
  file.back() = static_cast<char>(file.back() ^ 1);
  test_files::write_file(dir / "m.safetensors", file);
  ReadOptions options;
  options.verify = Verify::kLazy;
  const Reader reader = Reader::open(dir / "m.safetensors", options);
  const std::size_t damaged = reader.table().size() - 1;
  std::atomic<unsigned> found = 0;
  std::vector<std::jthread> threads;
  for (unsigned worker = 0; worker < kThreads; ++worker) {
    threads.emplace_back([&] {
      try {
        reader.view(damaged);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kCorrupt) ++found;
      }
    });
  }
  threads.clear();
  CHECK_EQ(found.load(), kThreads);
}

RUN_TESTS()
