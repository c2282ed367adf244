#include "file/boxes/boxed_tensors.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "file/boxes/box.h"
#include "file/reader_state.h"
#include "formats/format_spec.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

struct BoxPart {
  BoxRuns runs;
  std::shared_ptr<const ByteSource> source;
  std::uint64_t begin;  // of the box's bytes, in the source
};

// The bytes of a tensor that lies in several boxes.
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
        partition(runs, [&](std::uint64_t begin) { return begin + runs.run_bytes() <= offset; });
    const std::uint64_t last = partition(runs, [&](std::uint64_t begin) { return begin < end; });
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

  // The number of runs, from the first on, whose begin satisfies `before`.
  template <class Before>
  static std::uint64_t partition(const BoxRuns& runs, const Before& before) {
    std::uint64_t low = 0;
    std::uint64_t high = runs.run_count();
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (before(runs.offset_of(middle))) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  const std::vector<BoxPart> parts_;
  const std::uint64_t size_;
  const std::string name_;
};

using Part = BoxedTensors::Part;

bool overlap(const Part& a, const Part& b) {
  for (std::size_t i = 0; i < a.begin.size(); ++i) {
    if (a.begin[i] + a.size[i] <= b.begin[i] || b.begin[i] + b.size[i] <= a.begin[i]) return false;
  }
  return true;
}

void check_apart(const std::vector<Part>& parts) {
  std::vector<const Part*> order;
  for (const Part& part : parts) {
    if (std::find(part.size.begin(), part.size.end(), 0u) == part.size.end()) order.push_back(&part);
  }
  std::sort(order.begin(), order.end(), [](const Part* a, const Part* b) { return a->begin < b->begin; });
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t k = i + 1; k < order.size(); ++k) {
      const bool is_beyond = !order[i]->begin.empty() && order[k]->begin[0] >= order[i]->begin[0] + order[i]->size[0];
      if (is_beyond) break;
      if (overlap(*order[i], *order[k])) throw Error(ErrorCode::kCorrupt, "two chunks of the tensor overlap");
    }
  }
}

}  // namespace

// Sections are parts, counted over all tensors. Goes by the source of a tensor, because a renamed Reader shares it.
class BoxedTensors::PartChecksums final : public Checksums {
 public:
  explicit PartChecksums(std::shared_ptr<const std::vector<std::vector<Part>>> parts) : parts_(std::move(parts)) {
    for (const std::vector<Part>& of_tensor : *parts_) {
      firsts_.push_back(known_.size());
      for (const Part& part : of_tensor) known_.push_back({&part, part.reader.state_->known_checksums()});
    }
    firsts_.push_back(known_.size());
  }

  bool covers(const TensorTable& table, std::size_t tensor) const override {
    return all(table, tensor, [](const Known& known) { return known.covers(); });
  }
  bool needs_check(const TensorTable& table, std::size_t tensor) const override {
    return !all(table, tensor, [](const Known& known) {
      return !known.covers() || !known.checksums->needs_check(known.part->reader.table(), known.part->tensor);
    });
  }
  void check(const TensorTable& table, std::size_t tensor, const ConstBytes*) const override {
    all(table, tensor, [](const Known& known) {
      if (known.covers()) known.checksums->check(known.part->reader.table(), known.part->tensor, nullptr);
      return true;
    });
  }

  bool is_whole_section(const TensorTable&, std::size_t) const override { return false; }
  std::uint32_t extend(ConstBytes, std::uint32_t crc) const override { return crc; }
  void compare(const TensorTable&, std::size_t, std::uint32_t) const override {}

  void require_all(const TensorTable& table) const override {
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (table.nbytes(i) == 0 || covers(table, i)) continue;
      throw Error(ErrorCode::kUnsupported, "it has no checksum").in_tensor(table.name(i));
    }
  }

  std::vector<Section> sections(const TensorTable& table) const override {
    std::vector<Section> sections;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const std::size_t source = table.source_of(i);
      for (std::size_t k = firsts_[source]; k < firsts_[source + 1]; ++k) {
        if (!known_[k].covers()) continue;
        sections.push_back({k, known_[k].part->reader.table().nbytes(known_[k].part->tensor), table.name(i)});
      }
    }
    return sections;
  }
  void check_section(const TensorTable&, std::size_t number) const override {
    const Known& known = known_[number];
    // Compares also what was compared before.
    for (const Section& section : known.checksums->sections(known.part->reader.table())) {
      if (section.name != known.part->reader.table().name(known.part->tensor)) continue;
      known.checksums->check_section(known.part->reader.table(), section.number);
      return;
    }
    known.checksums->check(known.part->reader.table(), known.part->tensor, nullptr);
  }

 private:
  struct Known {
    const Part* part;
    std::shared_ptr<const Checksums> checksums;
    bool covers() const { return checksums != nullptr && checksums->covers(part->reader.table(), part->tensor); }
  };

  template <class Test>
  bool all(const TensorTable& table, std::size_t tensor, const Test& test) const {
    const std::size_t source = table.source_of(tensor);
    return std::all_of(known_.begin() + static_cast<std::ptrdiff_t>(firsts_[source]),
                       known_.begin() + static_cast<std::ptrdiff_t>(firsts_[source + 1]), test);
  }

  const std::shared_ptr<const std::vector<std::vector<Part>>> parts_;
  std::vector<Known> known_;
  std::vector<std::size_t> firsts_;  // of each tensor, in known_
};

BoxedTensors::BoxedTensors(std::string name, const ReadOptions& options)
    : name_(std::move(name)), options_(options), parts_(std::make_shared<std::vector<std::vector<Part>>>()) {}

void BoxedTensors::add(std::string_view name, DType dtype, const Shape& stored_shape, std::uint64_t item_bytes,
                       const std::vector<std::uint64_t>& shape, std::vector<Part> parts) try {
  const std::uint64_t size = contiguous_bytes(dtype, stored_shape).value_or(0);
  std::vector<BoxPart> boxes;
  std::uint64_t covered = 0;
  for (const Part& part : parts) {
    const TensorTable& table = part.reader.table();
    BoxRuns runs(TensorBox{item_bytes, shape, part.begin, part.size});
    if (runs.tensor_bytes() != size || runs.bytes() != table.nbytes(part.tensor)) {
      throw Error(ErrorCode::kCorrupt, "a chunk of " + std::to_string(runs.bytes()) + " bytes has " +
                                           std::to_string(table.nbytes(part.tensor)) + " bytes in its file");
    }
    covered += runs.bytes();
    boxes.push_back({std::move(runs), table.sources()[table.source_of(part.tensor)], table.begin(part.tensor)});
  }
  check_apart(parts);
  if (covered != size) {
    throw Error(ErrorCode::kCorrupt,
                "its chunks have " + std::to_string(covered) + " of its " + std::to_string(size) + " bytes");
  }
  bytes_ += covered;
  std::uint64_t begin = 0;
  std::uint32_t source;
  if (boxes.size() == 1) {
    begin = boxes[0].begin;
    source = table_.add_source(boxes[0].source);
  } else {
    source = table_.add_source(std::make_shared<BoxedSource>(std::move(boxes), size, name_));
  }
  table_.add({name, dtype, stored_shape, source, begin, begin + size, std::nullopt, nullptr});
  parts_->push_back(std::move(parts));
} catch (Error& error) {
  throw Error(ErrorCode::kCorrupt, error.message()).in_tensor(name).in_file(name_);
}

Reader BoxedTensors::finish() && {
  table_.finish();
  auto state = std::make_shared<Reader::State>();
  state->format = Format::kSafetensors;
  state->options = options_;
  state->table = std::move(table_);
  state->is_set = true;
  state->name = std::move(name_);
  state->expansion = ExpansionLimit::usual(bytes_, options_.limits);
  const std::shared_ptr<const std::vector<std::vector<Part>>> parts = std::move(parts_);
  state->own_checksums = [parts] { return std::make_shared<PartChecksums>(parts); };
  if (options_.verify != Verify::kOff) state->checksums = state->own_checksums();
  if (options_.verify == Verify::kFull) state->checksums->require_all(state->table);
  Reader reader(std::move(state));
  if (options_.verify == Verify::kFull) reader.verify_all(options_.verify_progress);
  return reader;
}

}  // namespace weightstore
