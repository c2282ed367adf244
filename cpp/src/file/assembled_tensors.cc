#include "file/assembled_tensors.h"

#include <algorithm>
#include <ranges>
#include <tuple>
#include <utility>

#include "base/joined_source.h"
#include "file/boxes/box_cover.h"
#include "file/boxes/boxed_source.h"
#include "file/reader_state.h"
#include "weightstore/error.h"

namespace weightstore {

// The checksums of the parts, for a table of tensors that consist of them. Goes by the places of tensors, because a
// renamed Reader shares it.
class AssembledTensors::PartChecksums final : public Checksums {
 public:
  PartChecksums(std::shared_ptr<const Reader::State> parts, std::shared_ptr<const Checksums> checksums,
                std::shared_ptr<const std::vector<Joined>> joined)
      : parts_(std::move(parts)), checksums_(std::move(checksums)), joined_(std::move(joined)) {}

  bool covers(const TensorTable& table, std::size_t tensor) const override {
    std::size_t only;
    const auto numbers = parts_of(table, tensor, only);
    return std::all_of(numbers.begin(), numbers.end(),
                       [&](std::size_t part) { return checksums_->covers(parts_->table, part); });
  }

  bool needs_check(const TensorTable& table, std::size_t tensor) const override {
    std::size_t only;
    const auto numbers = parts_of(table, tensor, only);
    return std::any_of(numbers.begin(), numbers.end(),
                       [&](std::size_t part) { return checksums_->needs_check(parts_->table, part); });
  }

  void check(const TensorTable& table, std::size_t tensor, const ConstBytes* bytes) const override {
    if (bytes != nullptr && !is_in_order(table, tensor)) bytes = nullptr;
    std::uint64_t done = 0;
    std::size_t only;
    for (const std::size_t part : parts_of(table, tensor, only)) {
      const std::uint64_t size = parts_->table.nbytes(part);
      ConstBytes of_part;
      if (bytes != nullptr) of_part = bytes->subspan(done, size);
      done += size;
      try {
        checksums_->check(parts_->table, part, bytes == nullptr ? nullptr : &of_part);
      } catch (Error& error) {
        throw error.in_tensor(parts_->table.name(part)).in_file(parts_->source_of(part).name());
      }
    }
  }

  bool is_whole_section(const TensorTable& table, std::size_t tensor) const override {
    std::size_t only;
    return parts_of(table, tensor, only).size() == 1;
  }
  std::uint32_t extend(ConstBytes bytes, std::uint32_t crc) const override { return checksums_->extend(bytes, crc); }
  void compare(const TensorTable& table, std::size_t tensor, std::uint32_t crc) const override {
    std::size_t only;
    checksums_->compare(parts_->table, parts_of(table, tensor, only).front(), crc);
  }

  void require_all(const TensorTable&) const override { checksums_->require_all(parts_->table); }

  std::vector<Section> sections(const TensorTable& table) const override {
    std::vector<bool> used(parts_->table.size());
    std::size_t only;
    for (std::size_t i = 0; i < table.size(); ++i) {
      for (const std::size_t part : parts_of(table, i, only)) used[part] = true;
    }
    std::vector<Section> sections = checksums_->sections(parts_->table);
    std::erase_if(sections, [&](const Section& section) { return !used[section.number]; });
    return sections;
  }
  void check_section(const TensorTable&, std::size_t number) const override {
    checksums_->check_section(parts_->table, number);
  }

 private:
  bool is_in_order(const TensorTable& table, std::size_t tensor) const {
    const std::size_t first = parts_->table.sources().size();
    return table.source_of(tensor) < first || (*joined_)[table.source_of(tensor) - first].is_in_order;
  }

  // The parts of a tensor. `only` is memory for the number of a single part.
  std::span<const std::size_t> parts_of(const TensorTable& table, std::size_t tensor, std::size_t& only) const {
    const TensorTable& parts = parts_->table;
    const std::size_t source = table.source_of(tensor);
    if (source >= parts.sources().size()) return (*joined_)[source - parts.sources().size()].numbers;
    // The only part has the place of the tensor. Parts are in the order of their places; of several empty parts at one
    // place any will do.
    const auto place_of = [](const TensorTable& of, std::size_t i) {
      return std::tuple(of.source_of(i), of.begin(i), of.nbytes(i));
    };
    const auto wanted = place_of(table, tensor);
    const auto numbers = std::views::iota(std::size_t{0}, parts.size());
    only = *std::ranges::partition_point(numbers, [&](std::size_t i) { return place_of(parts, i) < wanted; });
    return {&only, 1};
  }

  const std::shared_ptr<const Reader::State> parts_;
  const std::shared_ptr<const Checksums> checksums_;
  const std::shared_ptr<const std::vector<Joined>> joined_;
};

AssembledTensors::AssembledTensors(Reader parts, std::string name) : parts_(std::move(parts)), name_(std::move(name)) {
  for (const auto& source : parts_.table().sources()) table_.add_source(source);
}

void AssembledTensors::add(std::string_view name, std::span<const std::uint64_t> shape, PartNumbers numbers) {
  const TensorTable& parts = parts_.table();
  const std::size_t first = numbers.front();
  if (numbers.size() == 1) {
    const TensorInfo info = parts[first];
    return table_.add({name, info.dtype, shape, info.source, info.begin, info.end, info.param_id, info.quant});
  }
  std::vector<SourceRange> ranges;
  ranges.reserve(numbers.size());
  for (const std::size_t part : numbers) {
    ranges.push_back({parts.sources()[parts.source_of(part)], parts.begin(part), parts.nbytes(part)});
  }
  auto source = std::make_shared<JoinedSource>(std::move(ranges), name_);
  const std::uint64_t size = source->size();
  table_.add({name, parts.dtype(first), shape, table_.add_source(std::move(source)), 0, size, std::nullopt, nullptr});
  joined_.push_back({std::move(numbers), true});
}

void AssembledTensors::add_boxes(std::string_view name, std::span<const std::uint64_t> shape, PartNumbers numbers,
                                 std::span<const Shape> begins) try {
  const TensorTable& parts = parts_.table();
  const DType dtype = parts.dtype(numbers.front());
  std::vector<BoxPart> boxes;
  std::vector<BoxPlace> places;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t part = numbers[i];
    if (parts.dtype(part) != dtype) throw Error(ErrorCode::kCorrupt, "its chunks are of different types");
    places.push_back({begins[i], parts.shape(part)});
    boxes.push_back({BoxRuns(box_of(dtype, shape, begins[i], places.back().size)),
                     parts.sources()[parts.source_of(part)], parts.begin(part)});
  }
  if (const auto problem = why_no_cover(shape, places)) throw Error(ErrorCode::kCorrupt, *problem);
  const std::uint64_t size = boxes.front().runs.tensor_bytes();
  auto source = boxed_source(std::move(boxes), size, name_);
  table_.add({name, dtype, shape, table_.add_source(std::move(source)), 0, size, std::nullopt, nullptr});
  joined_.push_back({std::move(numbers), false});
} catch (Error& error) {
  throw Error(ErrorCode::kCorrupt, error.message()).in_tensor(name);
}

Reader AssembledTensors::finish() && {
  const std::shared_ptr<const Reader::State> parts = parts_.state_;
  if (parts->table.has_metadata()) table_.set_metadata(parts->table.metadata());
  table_.finish();
  auto state = std::make_shared<Reader::State>();
  state->format = parts->format;
  state->options = parts->options;
  state->ops = parts->ops;
  state->table = std::move(table_);
  state->is_set = true;
  state->name = std::move(name_);
  state->expansion = parts->expansion;
  const auto joined = std::make_shared<const std::vector<Joined>>(std::move(joined_));
  state->own_checksums = [parts, joined] {
    return std::make_shared<PartChecksums>(parts, parts->known_checksums(), joined);
  };
  if (parts->checksums) state->checksums = state->own_checksums();
  return Reader(std::move(state));
}

}  // namespace weightstore
