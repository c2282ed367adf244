#pragma once

// Files as a writer plans them, and what must be in them when they are written.

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/layout_stream.h"
#include "check.h"
#include "io/atomic_file.h"
#include "io/file_writer.h"
#include "test_files.h"

namespace file_plans {

using namespace weightstore;

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

// A planned file, and what its bytes must be.
struct Plan {
  Layout layout;
  std::vector<NewTensor> tensors;
  std::vector<std::string> data;  // by tensor
  std::string expected;
};

enum class Kind { kResident, kDeferred, kMixed };

// Keeps no more than one tensor's text: the producers refer to `plan.data`, which must not grow any more.
inline std::shared_ptr<ByteProducer> producer_of(const std::string& text, bool resident) {
  if (resident) return resident_bytes(test_files::as_bytes(text));
  return deferred_bytes(text.size(), [&text, next = std::uint64_t{0}](std::uint64_t offset, MutableBytes out) mutable {
    CHECK_EQ(offset, next);
    CHECK(!out.empty());
    std::memcpy(out.data(), text.data() + offset, out.size());
    next = offset + out.size();
    if (next == text.size()) next = 0;  // to be written again
  });
}

// Different bytes for every tensor, cut from one text: making them is what takes time.
inline std::string bytes_for(std::size_t tensor, std::size_t size) {
  static const std::string text = test_files::pattern(21 * kMiB);
  return text.substr(tensor * 7919 % 500000, size);
}

inline std::unique_ptr<Plan> make_plan(const std::vector<std::size_t>& sizes, Kind kind, std::size_t alignment = 1,
                                       std::size_t tail = 0) {
  auto plan = std::make_unique<Plan>();
  plan->layout.header = test_files::pattern(1000, 99);
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

inline std::vector<std::uint32_t> save(const std::filesystem::path& path, const Plan& plan,
                                       const io::StreamOptions& options, io::FileOps& ops = io::system_file_ops()) {
  io::AtomicFile file(path, {options.durable, true}, ops);
  auto checksums = io::stream_file(file, plan.layout, plan.tensors, options, ops);
  file.commit();
  return checksums;
}

inline io::StreamOptions durable(bool yes, bool checksums = false) { return {yes, checksums, {}}; }

// Sizes of all kinds, 16 MiB in all.
inline std::vector<std::size_t> assorted() {
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

}  // namespace file_plans
