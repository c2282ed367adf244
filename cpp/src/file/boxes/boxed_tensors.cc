#include "file/boxes/boxed_tensors.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "file/boxes/box.h"
#include "file/boxes/box_cover.h"
#include "file/boxes/boxed_source.h"
#include "file/reader_state.h"
#include "formats/format_spec.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

using Part = BoxedTensors::Part;

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
  std::vector<BoxPlace> places;
  for (const Part& part : parts) {
    const TensorTable& table = part.reader.table();
    BoxRuns runs(TensorBox{item_bytes, shape, part.begin, part.size});
    if (runs.tensor_bytes() != size || runs.bytes() != table.nbytes(part.tensor)) {
      throw Error(ErrorCode::kCorrupt, "a chunk of " + std::to_string(runs.bytes()) + " bytes has " +
                                           std::to_string(table.nbytes(part.tensor)) + " bytes in its file");
    }
    places.push_back({part.begin, part.size});
    boxes.push_back({std::move(runs), table.sources()[table.source_of(part.tensor)], table.begin(part.tensor)});
  }
  if (const auto problem = why_no_cover(shape, places)) throw Error(ErrorCode::kCorrupt, *problem);
  bytes_ += size;
  std::uint64_t begin = 0;
  std::uint32_t source;
  if (boxes.size() == 1) {
    begin = boxes[0].begin;
    source = table_.add_source(boxes[0].source);
  } else {
    source = table_.add_source(boxed_source(std::move(boxes), size, name_));
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
