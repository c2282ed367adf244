#include "io/file_writer.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "cache_control.h"
#include "check.h"
#include "faulty_file_ops.h"
#include "leftovers.h"
#include "test_files.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"

using namespace weightstore;
using faulty::Call;
using faulty::Fault;
using faulty::FaultyFileOps;
using test_files::as_bytes;
using test_files::pattern;
using test_files::read_file;
using test_files::TempDir;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// A planned file, and what its bytes must be.
struct Plan {
  Layout layout;
  std::vector<NewTensor> tensors;
  std::vector<std::string> data;  // by tensor
  std::string expected;
};

enum class Kind { kResident, kDeferred, kMixed };

// Keeps no more than one tensor's text: the producers refer to `plan.data`, which must not grow any more.
std::shared_ptr<ByteProducer> producer_of(const std::string& text, bool resident) {
  if (resident) return resident_bytes(as_bytes(text));
  return deferred_bytes(text.size(), [&text, next = std::uint64_t{0}](std::uint64_t offset, MutableBytes out) mutable {
    CHECK_EQ(offset, next);
    CHECK(!out.empty());
    std::memcpy(out.data(), text.data() + offset, out.size());
    next = offset + out.size();
    if (next == text.size()) next = 0;  // to be written again
  });
}

// Different bytes for every tensor, cut from one text: making them is what takes time.
std::string bytes_for(std::size_t tensor, std::size_t size) {
  static const std::string text = pattern(21 * kMiB);
  return text.substr(tensor * 7919 % 500000, size);
}

std::unique_ptr<Plan> make_plan(const std::vector<std::size_t>& sizes, Kind kind, std::size_t alignment = 1,
                                std::size_t tail = 0) {
  auto plan = std::make_unique<Plan>();
  plan->layout.header = pattern(1000, 99);
  plan->expected = plan->layout.header;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    plan->data.push_back(bytes_for(i, sizes[i]));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t begin = (plan->expected.size() + alignment - 1) / alignment * alignment;
    plan->expected.resize(begin);
    plan->expected += plan->data[i];
    NewTensor tensor;
    tensor.name = "t" + std::to_string(i);
    tensor.bytes = producer_of(plan->data[i], kind == Kind::kResident || (kind == Kind::kMixed && i % 2 == 0));
    plan->tensors.push_back(std::move(tensor));
    plan->layout.placements.push_back({i, begin, begin + sizes[i]});
  }
  plan->expected.resize(plan->expected.size() + tail);
  plan->layout.file_size = plan->expected.size();
  return plan;
}

std::vector<std::uint32_t> save(const std::filesystem::path& path, const Plan& plan, const io::StreamOptions& options,
                                io::FileOps& ops = io::system_file_ops()) {
  io::AtomicFile file(path, {options.durable, true}, ops);
  auto checksums = io::stream_file(file, plan.layout, plan.tensors, options, ops);
  file.commit();
  return checksums;
}

io::StreamOptions durable(bool yes, bool checksums = false) { return {yes, checksums, {}}; }

// Sizes of all kinds, 16 MiB in all.
std::vector<std::size_t> assorted() {
  return {0,
          1,
          100,
          4096,
          70000,
          300 * 1024,
          4 * kMiB,
          4 * kMiB - 1000,
          5,
          5 * kMiB + 3,
          0,
          7,
          20000,
          16383,
          16384,
          3,
          1000000,
          1,
          2 * kMiB - 17,
          33,
          0};
}

std::size_t resident_set() {
  std::size_t pages = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * 4096;
}

}  // namespace

TEST(all_modes_write_the_same_bytes) {
  const TempDir dir;
  for (const Kind kind : {Kind::kResident, Kind::kDeferred, Kind::kMixed}) {
    for (const std::size_t alignment : {std::size_t{1}, std::size_t{256}, std::size_t{700000}}) {
      const auto plan = make_plan(assorted(), kind, alignment, alignment == 256 ? 5 * kMiB : 0);
      for (const bool sync : {false, true}) {
        save(dir / "f", *plan, durable(sync));
        CHECK(read_file(dir / "f") == plan->expected);
      }
      const auto memory = io::stream_memory(plan->layout, plan->tensors, {}, nullptr);
      CHECK(test_files::as_text(memory) == plan->expected);
    }
  }
}

TEST(files_of_sizes_around_the_blocks) {
  const TempDir dir;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, 8 * kMiB - 1001, 8 * kMiB - 1000, 8 * kMiB - 999,
                                 12 * kMiB - 1000, 12 * kMiB + 3096, 12 * kMiB + 3097}) {
    const auto plan = make_plan({size}, Kind::kResident);
    for (const bool sync : {false, true}) {
      save(dir / "f", *plan, durable(sync));
      CHECK(read_file(dir / "f") == plan->expected);
    }
  }
}

TEST(tensors_may_lie_anywhere_in_a_page) {
  const TempDir dir;
  const std::string text = bytes_for(0, 10 * kMiB);
  const std::size_t page = 4096 - reinterpret_cast<std::uintptr_t>(text.data()) % 4096;
  for (const std::size_t shift : {0, 1, 31, 32, 4095, 4080, 4065}) {
    const std::string_view part = std::string_view(text).substr(page + shift, 9 * kMiB);
    std::vector<NewTensor> tensors(1);
    tensors[0].bytes = resident_bytes(as_bytes(part));
    for (const bool sync : {false, true}) {
      Plan plan;
      plan.layout = {"", {{0, 0, part.size()}}, part.size()};
      plan.tensors = tensors;
      save(dir / "f", plan, durable(sync));
      CHECK(read_file(dir / "f") == part);
    }
  }
}

TEST(many_small_tensors) {
  const TempDir dir;
  std::mt19937 random(1);
  std::vector<std::size_t> sizes(20000);
  for (std::size_t& size : sizes) size = random() % 2000;
  const auto plan = make_plan(sizes, Kind::kMixed, 8);
  for (const bool sync : {false, true}) {
    save(dir / "f", *plan, durable(sync));
    CHECK(read_file(dir / "f") == plan->expected);
  }
}

TEST(an_empty_layout_is_an_empty_file) {
  const TempDir dir;
  save(dir / "f", {}, durable(true));
  CHECK_EQ(read_file(dir / "f"), "");
}

TEST(checksums_are_those_of_the_tensors) {
  const TempDir dir;
  for (const Kind kind : {Kind::kResident, Kind::kDeferred}) {
    const auto plan = make_plan(assorted(), kind, 64);
    std::vector<std::uint32_t> expected;
    for (const std::string& text : plan->data) expected.push_back(crc32c(as_bytes(text)));
    for (const bool sync : {false, true}) CHECK(save(dir / "f", *plan, durable(sync, true)) == expected);
    std::vector<std::uint32_t> in_memory;
    io::stream_memory(plan->layout, plan->tensors, durable(false, true), &in_memory);
    CHECK(in_memory == expected);
    CHECK(save(dir / "f", *plan, durable(true)).empty());
  }
}

TEST(a_header_can_be_written_again) {
  const TempDir dir;
  for (const bool sync : {false, true}) {
    auto plan = make_plan(assorted(), Kind::kResident);
    io::AtomicFile file(dir / "f", {sync, true}, io::system_file_ops());
    io::stream_file(file, plan->layout, plan->tensors, durable(sync), io::system_file_ops());
    const std::string header = pattern(plan->layout.header.size(), 7);
    io::rewrite_header(file, header, io::system_file_ops());
    file.commit();
    CHECK(read_file(dir / "f") == plan->expected.replace(0, header.size(), header));
  }
}

TEST(large_files_that_will_be_synced_go_around_the_page_cache) {
  const TempDir dir;
  if (!cache_control::has_direct_io(dir.path())) {
    std::printf("skipped: this file system has no direct I/O\n");
    return;
  }
  const auto plan = make_plan({20 * kMiB}, Kind::kResident);
  FaultyFileOps ops;
  save(dir / "f", *plan, durable(true), ops);
  const auto log = ops.log();
  CHECK_EQ(std::count(log.begin(), log.end(), Call::kFtruncate), 1);
}

TEST(refused_direct_writes_are_made_up_for) {
  const TempDir dir;
  if (!cache_control::has_direct_io(dir.path())) {
    std::printf("skipped: this file system has no direct I/O\n");
    return;
  }
  const auto plan = make_plan({20 * kMiB}, Kind::kResident);
  // The second open is that of the direct descriptor, after the temporary's.
  for (const Fault& fault : {Fault{2, Call::kOpen, EINVAL, false}, Fault{1, Call::kPwrite, EINVAL, false}}) {
    FaultyFileOps ops(fault);
    save(dir / "f", *plan, durable(true), ops);
    CHECK_EQ(ops.injected(), 1u);
    CHECK(read_file(dir / "f") == plan->expected);
  }
  // Refused around the page cache and through it: then it is an error.
  FaultyFileOps ops({.at = 1, .kind = Call::kPwrite, .error = EINVAL, .onwards = true});
  CHECK_EQ(CHECK_THROWS(Error, save(dir / "f", *plan, durable(true), ops)).os_errno(), EINVAL);
}

TEST(file_systems_that_cannot_preallocate_are_served) {
  const TempDir dir;
  const auto plan = make_plan(assorted(), Kind::kMixed);
  for (const bool sync : {false, true}) {
    FaultyFileOps ops({.at = 1, .kind = Call::kFallocate, .error = EOPNOTSUPP});
    save(dir / "f", *plan, durable(sync), ops);
    CHECK_EQ(ops.injected(), 1u);
    CHECK(read_file(dir / "f") == plan->expected);
  }
}

TEST(a_full_disk_is_found_before_anything_is_produced) {
  const TempDir dir;
  Plan plan;
  plan.tensors.resize(1);
  plan.tensors[0].name = "t";
  plan.tensors[0].bytes = deferred_bytes(100, [](std::uint64_t, MutableBytes) { CHECK(false); });
  plan.layout = {"", {{0, 0, 100}}, 100};
  FaultyFileOps ops({.at = 1, .kind = Call::kFallocate, .error = ENOSPC});
  const Error error = CHECK_THROWS(Error, save(dir / "f", plan, durable(true), ops));
  CHECK(error.code() == ErrorCode::kIo);
  CHECK_EQ(error.os_errno(), ENOSPC);
  CHECK_EQ(error.path(), (dir / "f").string());
  CHECK(leftovers::names_in(dir.path()).empty());
}

TEST(a_producer_of_another_size_is_refused_by_name) {
  const TempDir dir;
  auto plan = make_plan({10, 20}, Kind::kDeferred);
  plan->tensors[1].bytes = resident_bytes(as_bytes("short"));
  const Error error = CHECK_THROWS(Error, save(dir / "f", *plan, durable(false)));
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK_EQ(error.tensor(), "t1");
  CHECK(std::string(error.what()).find("5 bytes where 20") != std::string::npos);
  CHECK(leftovers::names_in(dir.path()).empty());
}

TEST(a_plan_out_of_order_is_refused) {
  auto plan = make_plan({10, 20}, Kind::kResident);
  std::swap(plan->layout.placements[0], plan->layout.placements[1]);
  CHECK_THROWS(Error, io::stream_memory(plan->layout, plan->tensors, {}, nullptr));
  plan = make_plan({10, 20}, Kind::kResident);
  plan->layout.file_size -= 1;
  CHECK_THROWS(Error, io::stream_memory(plan->layout, plan->tensors, {}, nullptr));
}

TEST(a_producer_that_throws_abandons_the_write) {
  const TempDir dir;
  for (const bool sync : {false, true}) {
    auto plan = make_plan(assorted(), Kind::kResident);
    plan->tensors[9].bytes = deferred_bytes(plan->data[9].size(), [](std::uint64_t offset, MutableBytes) {
      if (offset > 0) throw Error(ErrorCode::kCorrupt, "no more");
    });
    const Error error = CHECK_THROWS(Error, save(dir / "f", *plan, durable(sync)));
    CHECK_EQ(error.message(), "no more");
    CHECK_EQ(error.tensor(), "t9");
    CHECK(leftovers::names_in(dir.path()).empty());
  }
}

namespace {

class CountedFinish final : public ByteProducer {
 public:
  explicit CountedFinish(bool resident) : resident_(resident) {}
  std::uint64_t size() const override { return sizeof text_; }
  void fill(std::uint64_t offset, MutableBytes out) override {
    CHECK_EQ(finished_, 0);
    std::memcpy(out.data(), text_ + offset, out.size());
  }
  std::optional<ConstBytes> resident() const override {
    if (!resident_) return std::nullopt;
    return std::as_bytes(std::span(text_));
  }
  void finished() override { ++finished_; }
  int finished_count() const { return finished_; }

 private:
  const bool resident_;
  char text_[5] = {'h', 'e', 'l', 'l', 'o'};
  int finished_ = 0;
};

// Its bytes are lost when it is finished.
class ShortLived final : public ByteProducer {
 public:
  explicit ShortLived(std::string text) : text_(std::move(text)) {}
  std::uint64_t size() const override { return text_.size(); }
  void fill(std::uint64_t, MutableBytes) override { CHECK(false); }
  std::optional<ConstBytes> resident() const override { return as_bytes(text_); }
  void finished() override { std::fill(text_.begin(), text_.end(), '?'); }

 private:
  std::string text_;
};

}  // namespace

TEST(producers_keep_their_memory_until_it_is_written) {
  const TempDir dir;
  for (const bool sync : {false, true}) {
    std::string expected;
    std::vector<NewTensor> tensors;
    Layout layout;
    for (std::size_t i = 0; i < 40; ++i) {
      const std::string text = bytes_for(i, 200000 + 20000 * i);
      tensors.emplace_back().bytes = std::make_shared<ShortLived>(text);
      layout.placements.push_back({i, expected.size(), expected.size() + text.size()});
      expected += text;
    }
    layout.file_size = expected.size();
    io::AtomicFile file(dir / "f", {sync, true}, io::system_file_ops());
    io::stream_file(file, layout, tensors, durable(sync), io::system_file_ops());
    file.commit();
    CHECK(read_file(dir / "f") == expected);
  }
}

TEST(producers_are_told_once_that_they_are_finished) {
  for (const bool resident : {false, true}) {
    const auto producer = std::make_shared<CountedFinish>(resident);
    std::vector<NewTensor> tensors(1);
    tensors[0].bytes = producer;
    io::stream_memory({"", {{0, 0, 5}}, 5}, tensors, {}, nullptr);
    CHECK_EQ(producer->finished_count(), 1);
  }
}

TEST(progress_ends_with_everything_written) {
  const TempDir dir;
  const auto caller = std::this_thread::get_id();
  for (const bool sync : {false, true}) {
    const auto plan = make_plan(assorted(), Kind::kMixed);
    std::uint64_t last = 0;
    int calls = 0;
    io::StreamOptions options = durable(sync);
    options.progress = [&](std::uint64_t done, std::uint64_t total, std::string_view name) {
      CHECK(std::this_thread::get_id() == caller);
      CHECK_EQ(total, plan->expected.size());
      CHECK(done > last);
      CHECK(name.starts_with("t"));
      last = done;
      ++calls;
      return true;
    };
    save(dir / "f", *plan, options);
    CHECK_EQ(last, plan->expected.size());
    CHECK(calls > 3);
  }
}

TEST(a_progress_callback_can_cancel) {
  const TempDir dir;
  test_files::write_file(dir / "f", "old");
  for (const bool sync : {false, true}) {
    const auto plan = make_plan(assorted(), Kind::kResident);
    io::StreamOptions options = durable(sync);
    options.progress = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
    CHECK(CHECK_THROWS(Error, save(dir / "f", *plan, options)).code() == ErrorCode::kCancelled);
    CHECK(leftovers::names_in(dir.path()) == std::vector<std::string>{"f"});
    CHECK_EQ(read_file(dir / "f"), "old");
  }
}

// The claim is about all memory of the process, so nothing here may hold the tensor: its bytes are made on the way.
TEST(extra_memory_is_a_few_blocks) {
#if defined(__SANITIZE_THREAD__)
  std::printf("skipped: the thread sanitizer multiplies the memory of a process\n");
  return;
#endif
  const TempDir dir;
  const std::uint64_t size = 200 * kMiB;
  for (const bool sync : {false, true}) {
    std::size_t most = 0;
    Plan plan;
    plan.tensors.resize(1);
    plan.tensors[0].name = "t";
    plan.tensors[0].bytes = deferred_bytes(size, [&](std::uint64_t offset, MutableBytes out) {
      std::memset(out.data(), static_cast<int>(offset >> 22), out.size());
      most = std::max(most, resident_set());
    });
    plan.layout = {"", {{0, 0, size}}, size};
    const std::size_t before = resident_set();
    save(dir / "f", plan, durable(sync));
    CHECK(most < before + 40 * kMiB);
    CHECK_EQ(std::filesystem::file_size(dir / "f"), size);
  }
}

RUN_TESTS()
