#include "formats/numpy/reader.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/strided/strided_source.h"
#include "codec/inflate.h"
#include "codec/memory_budget.h"
#include "codec/zip_directory.h"
#include "formats/charged_table.h"
#include "formats/numpy/array_header.h"
#include "formats/numpy/inflated_source.h"
#include "formats/numpy/member_checks.h"
#include "weightstore/error.h"

namespace weightstore::numpy {
namespace {

constexpr std::string_view kEnding = ".npy";
constexpr std::uint64_t kMemoryConstant = 64u << 10;

// The name of the array in a record of this name; nullopt when the record is no array.
std::optional<std::string_view> array_name(std::string_view record) {
  if (!record.ends_with(kEnding)) return std::nullopt;
  return record.substr(0, record.size() - kEnding.size());
}

// Puts arrays into a table whose source 0 is the file.
class ArrayPlacer {
 public:
  ArrayPlacer(std::shared_ptr<const ByteSource> file, const ReadOptions& options, std::uint64_t most_expanded)
      : file_(std::move(file)),
        limits_(options.limits),
        most_expanded_(most_expanded),
        memory_(std::make_shared<MemoryBudget>(file_->size(), kMemoryConstant)),
        table_(file_, *memory_) {}

  const std::shared_ptr<MemoryBudget>& memory() const { return memory_; }

  // The array whose file is `size` bytes from `begin` on.
  void place_stored(std::string_view name, std::uint64_t begin, std::uint64_t size) {
    const ArrayHeader header =
        read_array_header(size, [&](MutableBytes out) { file_->read_at(begin, out); }, limits_, *memory_);
    place(name, header, {0, begin + header.data_begin, begin}, [&] { return file_; });
  }

  void place_deflated(std::string_view name, const ZipRecord& record) {
    const ArrayHeader header = read_array_header(
        record.size, [&](MutableBytes out) { inflate_prefix({*file_, record.begin, record.end()}, out); }, limits_,
        *memory_);
    if (header.nbytes == 0) return place(name, header, {0, record.begin, record.begin}, [&] { return file_; });
    memory_->take(inflated_source_bytes());
    auto content = inflated_source(file_, {record.begin, record.end(), record.size}, header.data_begin);
    place(name, header, {kOwnSource, 0, record.begin}, [&] {
      if (!header.is_fortran) return content;
      memory_->take(kept_source_bytes());
      return kept_source(content, most_expanded_);
    });
  }

  // A member that is not read. `error` says why.
  void leave_out(const ZipRecord& record, const Error& error) {
    const std::string_view name = array_name(record.name).value_or(record.name);
    const std::string& reason = error.message();
    memory_->take(3 * sizeof(LeftOut) + MemoryBudget::heap_bytes(name.size()) +
                  MemoryBudget::heap_bytes(reason.size()));
    left_out_.push_back({std::string(name), "numpy.ndarray", reason});
    if (!first_error_) first_error_ = error;
  }

  // Throws the first reason when a member was left out and no array is there.
  TensorTable finish() {
    TensorTable table = table_.finish();
    if (table.size() == 0 && first_error_) throw *first_error_;
    table.set_left_out(std::move(left_out_));
    return table;
  }

  std::shared_ptr<const MemberPlaces> places() {
    std::sort(places_.begin(), places_.end());
    return std::make_shared<const MemberPlaces>(std::move(places_));
  }

 private:
  static constexpr std::uint32_t kOwnSource = 1;

  struct Place {
    std::uint32_t source;  // 0: the file; kOwnSource: what content() returns
    std::uint64_t begin;   // of the elements, in that source
    std::uint64_t member;  // where the member begins in the file
  };

  template <class Content>
  void place(std::string_view name, const ArrayHeader& header, Place place, Content content) {
    TensorTable::Row row{name, header.dtype, header.shape, 0, place.begin, place.begin + header.nbytes, {}, {}};
    const bool is_as_read = !header.is_fortran && !header.is_swapped;
    if (header.nbytes > 0 && (place.source != 0 || !is_as_read)) {
      std::shared_ptr<const ByteSource> source = content();
      if (!is_as_read) {
        memory_->take(strided_source_bytes(header.shape.size()));
        source = strided_source(std::move(source), elements_of(header, place.begin));
      }
      memory_->take(3 * sizeof(MemberPlaces::value_type));  // in an array that doubles
      places_.emplace_back(source.get(), place.member);
      row.source = table_.add_source(std::move(source));
      row.begin = 0;
      row.end = header.nbytes;
    }
    table_.add(row);
  }

  static StridedElements elements_of(const ArrayHeader& header, std::uint64_t begin) {
    StridedElements elements;
    elements.begin = begin;
    elements.item_bytes = bits_of(header.dtype) / 8;
    const bool is_complex = header.dtype == DType::kC64 || header.dtype == DType::kC128;
    if (header.is_swapped) elements.swap_bytes = elements.item_bytes / (is_complex ? 2 : 1);
    elements.dims.resize(header.shape.size());
    // The innermost dimension is the first one in Fortran's order, the last one in C's.
    auto stride = static_cast<std::int64_t>(elements.item_bytes);
    for (std::size_t k = 0; k < header.shape.size(); ++k) {
      const std::size_t i = header.is_fortran ? k : header.shape.size() - 1 - k;
      elements.dims[i] = {header.shape[i], stride};
      stride *= static_cast<std::int64_t>(header.shape[i]);
    }
    return elements;
  }

  const std::shared_ptr<const ByteSource> file_;
  const Limits& limits_;
  const std::uint64_t most_expanded_;
  const std::shared_ptr<MemoryBudget> memory_;
  ChargedTable table_;
  MemberPlaces places_;
  std::vector<LeftOut> left_out_;
  std::optional<Error> first_error_;
};

void place_member(ArrayPlacer& placer, const ZipRecord& record) {
  const auto array = array_name(record.name);
  if (!array) {
    throw Error(ErrorCode::kUnsupported, "the record '" + printable(record.name) + "' is no .npy array");
  }
  const std::string_view name = *array;
  try {
    if (record.deflated) {
      placer.place_deflated(name, record);
    } else {
      placer.place_stored(name, record.begin, record.size);
    }
  } catch (Error& error) {
    throw error.in_tensor(name.substr(0, 1024)).at_offset(record.begin);
  }
}

OpenedFile read(std::shared_ptr<const ByteSource> source, const ReadOptions& options) {
  const std::uint64_t size = source->size();
  const ExpansionLimit expansion = ExpansionLimit::usual(size, options.limits);
  ArrayPlacer placer(source, options, expansion.bytes);
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(size, kHeadBytes)), '\0');
  source->read_at(0, std::as_writable_bytes(std::span(head)));
  if (is_array(head)) {
    try {
      placer.place_stored("arr_0", 0, size);
    } catch (Error& error) {
      throw error.in_tensor("arr_0");
    }
    return {.table = placer.finish()};
  }
  const ZipDirectory directory = ZipDirectory::read(*source, {.records = options.limits.zip_records}, placer.memory());
  for (std::size_t i = 0; i < directory.size(); ++i) {
    try {
      place_member(placer, directory[i]);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported || options.opaque != Opaque::kSkip) throw;
      placer.leave_out(directory[i], error);
    }
  }
  TensorTable table = placer.finish();
  return {
      .table = std::move(table),
      .expansion = expansion,
      .own_checksums = [source, limits = options.limits,
                        places = placer.places()] { return read_member_checks(*source, limits, places); },
  };
}

}  // namespace

bool is_array(std::string_view head) { return head.starts_with("\x93NUMPY"); }

OpenedFile open(std::shared_ptr<const ByteSource> source, const ReadOptions& options) {
  try {
    return read(std::move(source), options);
  } catch (Error& error) {
    error.of_format(Format::kNumpy);
    throw;
  }
}

}  // namespace weightstore::numpy
