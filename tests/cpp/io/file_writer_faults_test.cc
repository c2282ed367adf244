// What goes wrong while a file is written, and who is told what.

#include <algorithm>
#include <cstring>
#include <thread>

#include "cache_control.h"
#include "check.h"
#include "directory_listing.h"
#include "faulty_file_ops.h"
#include "file_plans.h"
#include "test_files.h"
#include "weightstore/error.h"

using namespace weightstore;
using namespace file_plans;
using faulty::Call;
using faulty::Fault;
using faulty::FaultyFileOps;
using test_files::as_bytes;
using test_files::read_file;
using test_files::TempDir;

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
  CHECK(directory_listing::names_in(dir.path()).empty());
}

TEST(a_producer_of_another_size_is_refused_by_name) {
  const TempDir dir;
  auto plan = make_plan({10, 20}, Kind::kDeferred);
  plan->tensors[1].bytes = resident_bytes(as_bytes("short"));
  const Error error = CHECK_THROWS(Error, save(dir / "f", *plan, durable(false)));
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK_EQ(error.tensor(), "t1");
  CHECK(std::string(error.what()).find("5 bytes where 20") != std::string::npos);
  CHECK(directory_listing::names_in(dir.path()).empty());
}

TEST(a_plan_out_of_order_is_refused) {
  auto plan = make_plan({10, 20}, Kind::kResident);
  std::swap(plan->layout.placements[0], plan->layout.placements[1]);
  CHECK_THROWS(Error, stream_memory(plan->layout, plan->tensors, {}, nullptr));
  plan = make_plan({10, 20}, Kind::kResident);
  plan->layout.file_size -= 1;
  CHECK_THROWS(Error, stream_memory(plan->layout, plan->tensors, {}, nullptr));
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
    CHECK(directory_listing::names_in(dir.path()).empty());
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
    stream_memory({"", {{0, 0, 5}}, 5}, tensors, {}, nullptr);
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
    CHECK(directory_listing::names_in(dir.path()) == std::vector<std::string>{"f"});
    CHECK_EQ(read_file(dir / "f"), "old");
  }
}

RUN_TESTS()
