// Looks at tensors in parts, which the threads take one after the other. For a histogram the numbers are needed a
// second time, when their range is known: tensors are looked at in groups that fit a cache of the processor, so that
// small ones are read from memory once.

#include "weightstore/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <string>

#include "file/look/tensor_numbers.h"
#include "io/huge_buffer.h"
#include "io/parallel.h"
#include "io/progress_meter.h"
#include "kernels/differences.h"
#include "kernels/histogram.h"
#include "kernels/numbers.h"
#include "kernels/statistics.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

// Even, for types with two numbers in a byte. Two threads that map pages of the same 2 MiB wait for each other.
constexpr std::uint64_t kPartNumbers = 512u << 10;
constexpr std::uint64_t kGroupBytes = 16u << 20;
constexpr std::size_t kMostBins = 65'536;

// Numbers of one tensor, or of one pair of tensors, that a thread looks at.
struct Part {
  std::size_t item;
  std::uint64_t first;
  std::uint64_t count;
};

// The parts of an item; one for all of it if only one thread may read it.
void add_parts(std::size_t item, std::uint64_t numbers, bool shared, std::vector<Part>& parts) {
  const std::uint64_t step = shared ? kPartNumbers : std::max<std::uint64_t>(numbers, 1);
  for (std::uint64_t first = 0; first < numbers; first += step) {
    parts.push_back({item, first, std::min(step, numbers - first)});
  }
}

// Calls look(bytes) for the numbers of a part, step by step.
template <class Look>
void for_steps(const TensorNumbers& numbers, const Part& part, const io::StopFlag& stop, MutableBytes buffer,
               const Look& look) {
  const std::uint64_t step = numbers.step();
  for (std::uint64_t done = 0; done < part.count && !stop.is_set(); done += step) {
    const auto count = static_cast<std::size_t>(std::min(step, part.count - done));
    look(numbers.read(part.first + done, count, buffer));
  }
}

// A buffer for each thread, made when the thread needs it.
class Buffers {
 public:
  explicit Buffers(unsigned threads) : buffers_(threads) {}

  MutableBytes of(unsigned worker) {
    if (buffers_[worker].bytes.empty()) buffers_[worker] = io::allocate_bulk(TensorNumbers::kBufferBytes);
    return buffers_[worker].bytes;
  }

 private:
  std::vector<SharedMutableBytes> buffers_;
};

unsigned threads_of(const StatisticsOptions& options) {
  return options.threads != 0 ? options.threads : io::default_threads();
}

// A small hostile file may describe tensors of any size.
std::uint64_t checked_total(const Reader& reader, std::span<const std::size_t> tensors) {
  std::uint64_t total = 0;
  for (const std::size_t tensor : tensors) total += std::min(reader.table().nbytes(tensor), ~total);
  reader.check_expansion(total);
  return total;
}

Scalar extreme(const kernels::Moments& moments, kernels::NumberKind kind, double number, std::uint64_t integer) {
  if (moments.finite == 0) return std::numeric_limits<double>::quiet_NaN();
  if (kind == kernels::NumberKind::kUnsigned) return integer;
  if (kind == kernels::NumberKind::kSigned) return std::bit_cast<std::int64_t>(integer ^ kernels::kSignBit);
  return number;
}

Statistics statistics_from(const kernels::Moments& moments, DType type) {
  const kernels::NumberKind kind = kernels::number_kind(type);
  Statistics result;
  result.count = moments.finite + moments.nans + moments.infinities;
  result.nans = moments.nans;
  result.infinities = moments.infinities;
  result.zeros = moments.zeros;
  result.min = extreme(moments, kind, moments.min, moments.min_integer);
  result.max = extreme(moments, kind, moments.max, moments.max_integer);
  const double nothing = std::numeric_limits<double>::quiet_NaN();
  result.mean = moments.finite != 0 ? moments.mean : nothing;
  result.deviation = moments.finite != 0 ? std::sqrt(moments.squares / static_cast<double>(moments.finite)) : nothing;
  return result;
}

// The tensors of one group.
class Group {
 public:
  Group(const Reader& reader, std::span<const std::size_t> tensors, const StatisticsOptions& options, Buffers& buffers,
        io::ProgressMeter& meter)
      : reader_(reader), tensors_(tensors), options_(options), buffers_(buffers), meter_(meter) {}

  void look(std::span<std::optional<Statistics>> results) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      numbers_.emplace_back(reader_, tensors_[i]);
      if (numbers_[i].has_numbers()) add_parts(i, numbers_[i].size(), numbers_[i].is_shared(), parts_);
    }
    const std::vector<kernels::Moments> moments = all_moments();
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (numbers_[i].has_numbers()) results[i] = statistics_from(moments[i], numbers_[i].type());
    }
    if (options_.bins != 0) add_histograms(moments, results);
  }

 private:
  std::vector<kernels::Moments> all_moments() {
    std::vector<kernels::Moments> of_parts(parts_.size());
    const std::uint64_t passes = options_.bins != 0 ? 2 : 1;
    for_parts(passes, [&](std::size_t k, const TensorNumbers& numbers, const auto& for_all_steps) {
      for_all_steps([&](ConstBytes bytes) { of_parts[k].add(kernels::moments_of(numbers.type(), bytes)); });
    });
    std::vector<kernels::Moments> all(tensors_.size());
    for (std::size_t k = 0; k < parts_.size(); ++k) all[parts_[k].item].add(of_parts[k]);
    return all;
  }

  void add_histograms(const std::vector<kernels::Moments>& moments, std::span<std::optional<Statistics>> results) {
    for (std::optional<Statistics>& result : results) {
      if (result) result->histogram.resize(options_.bins);
    }
    std::mutex mutex;
    for_parts(2, [&](std::size_t k, const TensorNumbers& numbers, const auto& for_all_steps) {
      const kernels::Moments& range = moments[parts_[k].item];
      if (range.finite == 0) return;
      kernels::Histogram counted(numbers.type(), range.min, range.max, options_.bins);
      for_all_steps([&](ConstBytes bytes) { counted.add(bytes); });
      const std::vector<std::uint64_t>& counts = counted.counts();
      const std::lock_guard lock(mutex);
      std::vector<std::uint64_t>& all = results[parts_[k].item]->histogram;
      for (std::size_t bin = 0; bin < counts.size(); ++bin) all[bin] += counts[bin];
    });
  }

  // Calls look(part, numbers, for_all_steps); for_all_steps(see) calls see(bytes) for all numbers of the part. Each of
  // `passes` passes counts its share of the bytes.
  template <class Look>
  void for_parts(std::uint64_t passes, const Look& look) {
    const auto work = [&](std::size_t k, const io::Worker& worker) {
      const Part& part = parts_[k];
      const TensorNumbers& numbers = numbers_[part.item];
      look(k, numbers,
           [&](const auto& see) { for_steps(numbers, part, worker.stop, buffers_.of(worker.number), see); });
      const double share = static_cast<double>(part.count) / static_cast<double>(numbers.size());
      const auto bytes = static_cast<std::uint64_t>(share * static_cast<double>(numbers.nbytes()));
      meter_.add(bytes / passes, reader_.table().name(tensors_[part.item]));
    };
    io::parallel_for(parts_.size(), threads_of(options_), work, watch());
  }

  std::function<void()> watch() {
    if (!options_.progress) return {};
    return [this] { meter_.report(); };
  }

  const Reader& reader_;
  const std::span<const std::size_t> tensors_;
  const StatisticsOptions& options_;
  Buffers& buffers_;
  io::ProgressMeter& meter_;
  std::vector<TensorNumbers> numbers_;
  std::vector<Part> parts_;
};

}  // namespace

std::vector<std::optional<Statistics>> statistics_of(const Reader& reader, std::span<const std::size_t> tensors,
                                                     const StatisticsOptions& options) {
  if (options.bins > kMostBins) {
    throw Error(ErrorCode::kInvalidArgument,
                "a histogram has at most " + std::to_string(kMostBins) + " bins, not " + std::to_string(options.bins));
  }
  const std::uint64_t total = checked_total(reader, tensors);
  io::ProgressMeter meter(options.progress, total, "the statistics were cancelled");
  Buffers buffers(threads_of(options));
  std::vector<std::optional<Statistics>> results(tensors.size());
  for (std::size_t first = 0; first < tensors.size();) {
    std::size_t last = first;
    std::uint64_t bytes = 0;
    while (last < tensors.size() && (last == first || options.bins == 0 || bytes < kGroupBytes)) {
      bytes += reader.table().nbytes(tensors[last++]);
    }
    Group group(reader, tensors.subspan(first, last - first), options, buffers, meter);
    group.look(std::span(results).subspan(first, last - first));
    first = last;
  }
  meter.report_total();
  return results;
}

std::vector<std::optional<ValueDifference>> compare_values(const Reader& a, const Reader& b,
                                                           std::span<const std::pair<std::size_t, std::size_t>> pairs,
                                                           const StatisticsOptions& options) {
  std::vector<std::size_t> of_a, of_b;
  for (const auto& [left, right] : pairs) {
    of_a.push_back(left);
    of_b.push_back(right);
  }
  const std::uint64_t total = checked_total(a, of_a);
  checked_total(b, of_b);
  io::ProgressMeter meter(options.progress, total, "the comparison was cancelled");
  const unsigned threads = threads_of(options);
  Buffers a_buffers(threads), b_buffers(threads);

  std::vector<TensorNumbers> lefts, rights;
  std::vector<Part> parts;
  std::vector<std::optional<ValueDifference>> results(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const bool same_type = a.table().dtype(of_a[i]) == b.table().dtype(of_b[i]);
    const TensorNumbers& left = lefts.emplace_back(a, of_a[i], same_type);
    const TensorNumbers& right = rights.emplace_back(b, of_b[i], same_type);
    if (!left.has_numbers() || !right.has_numbers() || left.size() != right.size()) continue;
    results[i].emplace();
    add_parts(i, left.size(), left.is_shared() && right.is_shared(), parts);
  }
  std::vector<kernels::Differences> of_parts(parts.size());
  const auto work = [&](std::size_t k, const io::Worker& worker) {
    const Part& part = parts[k];
    const TensorNumbers& left = lefts[part.item];
    const TensorNumbers& right = rights[part.item];
    const std::uint64_t step = std::min(left.step(), right.step());
    for (std::uint64_t done = 0; done < part.count && !worker.stop.is_set(); done += step) {
      const auto count = static_cast<std::size_t>(std::min(step, part.count - done));
      const ConstBytes left_bytes = left.read(part.first + done, count, a_buffers.of(worker.number));
      const ConstBytes right_bytes = right.read(part.first + done, count, b_buffers.of(worker.number));
      kernels::compare_numbers(left.type(), left_bytes, right.type(), right_bytes, of_parts[k]);
    }
    const double share = static_cast<double>(part.count) / static_cast<double>(left.size());
    meter.add(static_cast<std::uint64_t>(share * static_cast<double>(left.nbytes())), a.table().name(of_a[part.item]));
  };
  const std::function<void()> watch = [&] { meter.report(); };
  io::parallel_for(parts.size(), threads, work, options.progress ? watch : std::function<void()>());
  meter.report_total();
  for (std::size_t k = 0; k < parts.size(); ++k) {
    ValueDifference& result = *results[parts[k].item];
    const kernels::Differences& found = of_parts[k];
    result.count += found.count;
    result.differing += found.differing;
    result.unmeasured += found.unmeasured;
    result.max_absolute = std::max(result.max_absolute, found.max_absolute);
    result.max_relative = std::max(result.max_relative, found.max_relative);
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (!results[i] || !lefts[i].is_bytes()) continue;
    results[i]->unmeasured = results[i]->differing;  // bytes that differ have no distance
    results[i]->max_absolute = results[i]->max_relative = 0;
  }
  return results;
}

}  // namespace weightstore
