#include "file/boxes/boxed_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "weightstore/error.h"

namespace weightstore {
namespace {

class BoxedSource final : public ByteSource {
 public:
  BoxedSource(std::vector<BoxPart> parts, std::uint64_t size, std::string name)
      : parts_(std::move(parts)), size_(size), name_(std::move(name)) {}

  std::uint64_t size() const override { return size_; }
  std::string name() const override { return name_; }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      throw Error(ErrorCode::kIo, "read beyond the end of a tensor of " + std::to_string(size_) + " bytes")
          .in_file(name_)
          .at_offset(offset);
    }
    std::vector<std::byte> scratch;
    for (const BoxPart& part : parts_) read_part(part, offset, out, scratch);
  }

 private:
  // The runs of a box that a range of the tensor touches lie together in the box: one read brings them all.
  static void read_part(const BoxPart& part, std::uint64_t offset, MutableBytes out, std::vector<std::byte>& scratch) {
    const BoxRuns& runs = part.runs;
    if (runs.bytes() == 0 || out.empty()) return;
    const std::uint64_t end = offset + out.size();
    // The first run that ends after `offset`, and the first that begins at `end` or after it.
    const std::uint64_t first =
        runs.count_while([&](std::uint64_t begin) { return begin + runs.run_bytes() <= offset; });
    const std::uint64_t last = runs.count_while([&](std::uint64_t begin) { return begin < end; });
    if (first >= last) return;
    const std::uint64_t skipped = std::max(offset, runs.offset_of(first)) - runs.offset_of(first);
    const std::uint64_t cut =
        runs.offset_of(last - 1) + runs.run_bytes() - std::min(end, runs.offset_of(last - 1) + runs.run_bytes());
    const std::uint64_t from = first * runs.run_bytes() + skipped;
    const std::uint64_t bytes = last * runs.run_bytes() - cut - from;
    if (last - first == 1) {
      part.source->read_at(part.begin + from, out.subspan(runs.offset_of(first) + skipped - offset, bytes));
      return;
    }
    scratch.resize(std::max<std::size_t>(scratch.size(), bytes));
    part.source->read_at(part.begin + from, MutableBytes(scratch).first(bytes));
    std::uint64_t done = 0;
    for (std::uint64_t run = first; run < last; ++run) {
      const std::uint64_t begin = std::max(offset, runs.offset_of(run));
      const std::uint64_t length = std::min(end, runs.offset_of(run) + runs.run_bytes()) - begin;
      std::memcpy(out.data() + (begin - offset), scratch.data() + done, length);
      done += length;
    }
  }

  const std::vector<BoxPart> parts_;
  const std::uint64_t size_;
  const std::string name_;
};

}  // namespace

std::shared_ptr<const ByteSource> boxed_source(std::vector<BoxPart> parts, std::uint64_t size, std::string name) {
  return std::make_shared<BoxedSource>(std::move(parts), size, std::move(name));
}

}  // namespace weightstore
