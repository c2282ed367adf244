#include "file/boxes/box_writer.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/crc32c_parts.h"
#include "base/strided/strided_memory.h"
#include "io/checked_io.h"
#include "io/copy_bytes.h"
#include "io/huge_buffer.h"
#include "io/new_file.h"
#include "io/parallel.h"
#include "io/progress_meter.h"
#include "weightstore/error.h"

// The work is cut into units of up to 4 MiB. A unit is a part of a long run, cut where the file offset is a multiple of
// 4 MiB, so that direct writes are aligned; or it is many short runs. Only the two ends of a long run, which share
// their blocks with the neighbours in the file, go through the page cache.

namespace weightstore {
namespace {

constexpr std::uint64_t kLongRun = 1u << 20;  // below, a direct write of its own does not pay
constexpr std::size_t kFilesAtOnce = 64;

// One open file, for all threads.
class BoxFile {
 public:
  BoxFile(const std::filesystem::path& path, bool direct, io::FileOps& ops) : ops_(ops), path_(path.native()) {
    fd_ = io::retry_interrupted([&] { return ops_.open(path_.c_str(), O_WRONLY | O_CLOEXEC, 0); });
    if (fd_ < 0) throw io::io_error(errno, "cannot open the file to write into it", path_);
    if (direct) direct_ = io::reopen_direct(ops_, fd_, O_WRONLY);
  }
  ~BoxFile() {
    io::close_quietly(ops_, direct_);
    io::close_quietly(ops_, fd_);
  }
  BoxFile(const BoxFile&) = delete;
  BoxFile& operator=(const BoxFile&) = delete;

  const std::string& path() const { return path_; }
  bool is_direct() const { return direct_ >= 0 && !refused_.load(std::memory_order_relaxed); }

  void write(std::uint64_t offset, ConstBytes bytes) { io::write_fully(ops_, fd_, bytes, offset, path_); }

  // `bytes` lie in their page of memory as they do in their block of the file.
  void write_direct(std::uint64_t offset, ConstBytes bytes) {
    const std::size_t head = std::min<std::size_t>(
        (io::kDirectAlignment - offset % io::kDirectAlignment) % io::kDirectAlignment, bytes.size());
    write(offset, bytes.first(head));
    offset += head;
    bytes = bytes.subspan(head);
    while (bytes.size() >= io::kDirectAlignment && is_direct()) {
      const std::size_t whole = bytes.size() / io::kDirectAlignment * io::kDirectAlignment;
      const ssize_t n =
          io::retry_interrupted([&] { return ops_.pwrite(direct_, bytes.data(), whole, static_cast<off_t>(offset)); });
      if (n < 0 && errno != EINVAL) throw io::io_error(errno, "cannot write", path_).at_offset(offset);
      if (n <= 0 || static_cast<std::size_t>(n) % io::kDirectAlignment != 0) refused_.store(true);
      if (n <= 0) break;
      offset += static_cast<std::uint64_t>(n);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    write(offset, bytes);
  }

  void sync() {
    // Repeated only after a signal: after an error the kernel may have dropped the data that it could not write.
    if (io::retry_interrupted([&] { return ops_.fsync(fd_); }) != 0)
      throw io::io_error(errno, "cannot sync the file", path_);
  }

 private:
  io::FileOps& ops_;
  const std::string path_;
  int fd_ = -1;
  int direct_ = -1;
  std::atomic<bool> refused_{false};
};

// Bytes [from, from + size) of a box, in row-major order.
struct BoxUnit {
  std::size_t box;
  std::uint64_t from;
  std::uint64_t size;
};

struct PlannedBox {
  const NewBox* box;
  BoxRuns runs;
  StridedMemory values;
  bool is_long() const { return runs.run_count() == 1 || runs.run_bytes() >= kLongRun; }
};

PlannedBox planned(const NewBox& box, std::size_t file_count) try {
  if (box.file >= file_count) throw Error(ErrorCode::kInvalidArgument, "there is no file with its number");
  PlannedBox result{&box, BoxRuns(box.box), StridedMemory(box.values)};
  if (result.values.size() != result.runs.bytes()) {
    throw Error(ErrorCode::kInvalidArgument, "the box has " + std::to_string(result.runs.bytes()) +
                                                 " bytes, its values " + std::to_string(result.values.size()));
  }
  return result;
} catch (Error& error) {
  error.in_tensor(box.name);
  throw;
}

void add_units(const PlannedBox& planned, std::size_t number, std::vector<BoxUnit>& units) {
  const BoxRuns& runs = planned.runs;
  if (!planned.is_long()) {
    const std::uint64_t step = std::max<std::uint64_t>(io::kChunkBytes / runs.run_bytes(), 1) * runs.run_bytes();
    for (std::uint64_t from = 0; from < runs.bytes(); from += step) {
      units.push_back({number, from, std::min(step, runs.bytes() - from)});
    }
    return;
  }
  for (std::uint64_t run = 0; run < runs.run_count(); ++run) {
    const std::uint64_t begin = planned.box->begin + runs.offset_of(run);
    for (std::uint64_t done = 0; done < runs.run_bytes();) {
      const std::uint64_t until = io::kChunkBytes - (begin + done) % io::kChunkBytes;
      const std::uint64_t size = std::min(until, runs.run_bytes() - done);
      units.push_back({number, run * runs.run_bytes() + done, size});
      done += size;
    }
  }
}

// The gaps between the short runs of a box have few different sizes: one for each dimension.
class GapTables {
 public:
  std::uint32_t extend(std::uint32_t remainder, std::uint64_t count) {
    if (count == 0) return remainder;
    for (const ZeroBytes& known : tables_) {
      if (known.count() == count) return known.extend(remainder);
    }
    // A table pays when it is used a few hundred times.
    if (++misses_ < kMisses) return extend_remainder(remainder, count);
    misses_ = 0;
    if (tables_.size() == kTables) tables_.pop_back();
    tables_.insert(tables_.begin(), ZeroBytes(count));
    return tables_.front().extend(remainder);
  }

 private:
  static constexpr std::size_t kTables = 4;
  static constexpr int kMisses = 8;
  std::vector<ZeroBytes> tables_;
  int misses_ = 0;
};

class BoxWrite {
 public:
  BoxWrite(std::span<const std::filesystem::path> files, std::span<const NewBox> boxes, const BoxWriteOptions& options,
           io::FileOps& ops)
      : files_(files), options_(options), ops_(ops), remainders_(boxes.size()) {
    boxes_.reserve(boxes.size());
    std::uint64_t total = 0;
    for (const NewBox& box : boxes) {
      boxes_.push_back(planned(box, files.size()));
      total += boxes_.back().runs.bytes();
    }
    total_ = total;
  }

  std::vector<std::uint32_t> run() {
    io::ProgressMeter meter(options_.progress, total_, "writing was cancelled");
    meter_ = &meter;
    std::vector<std::size_t> order(boxes_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const NewBox& left = *boxes_[a].box;
      const NewBox& right = *boxes_[b].box;
      return std::pair(left.file, left.begin) < std::pair(right.file, right.begin);
    });
    for (std::size_t first = 0; first < order.size();) {
      std::size_t last = first;
      std::size_t opened = 0;
      for (; last < order.size(); ++last) {
        const bool is_new = last == first || boxes_[order[last]].box->file != boxes_[order[last - 1]].box->file;
        if (is_new && ++opened > kFilesAtOnce) break;
      }
      write_some(std::span(order).subspan(first, last - first));
      first = last;
    }
    meter.report_total();
    if (!options_.checksums) return {};
    return std::vector<std::uint32_t>(remainders_.begin(), remainders_.end());
  }

 private:
  // The boxes of up to kFilesAtOnce files.
  void write_some(std::span<const std::size_t> order) {
    std::vector<std::unique_ptr<BoxFile>> opened(files_.size());
    std::vector<BoxFile*> to_sync;
    std::vector<BoxUnit> units;
    for (const std::size_t i : order) {
      const std::size_t file = boxes_[i].box->file;
      if (opened[file] == nullptr) {
        opened[file] = std::make_unique<BoxFile>(files_[file], options_.durable, ops_);
        to_sync.push_back(opened[file].get());
      }
      if (boxes_[i].runs.bytes() > 0) add_units(boxes_[i], i, units);
    }
    const unsigned threads = options_.threads == 0 ? io::default_threads() : options_.threads;
    std::vector<Scratch> scratch(std::max<std::size_t>(threads, 1));
    const auto watch = options_.progress ? [this] { meter_->report(); } : std::function<void()>();
    io::parallel_for(
        units.size(), threads,
        [&](std::size_t i, const io::Worker& worker) {
          const BoxUnit& unit = units[i];
          write_unit(unit, *opened[boxes_[unit.box].box->file], scratch[worker.number]);
        },
        watch);
    if (!options_.durable) return;
    io::parallel_for(to_sync.size(), threads, [&](std::size_t i) { to_sync[i]->sync(); });
  }

  // Memory of a thread.
  struct Scratch {
    SharedMutableBytes memory;
    GapTables gaps;

    // Room for `size` bytes that begin `skew` bytes into a page.
    MutableBytes room(std::uint64_t skew, std::size_t size) {
      if (memory.bytes.empty()) memory = io::allocate_bulk(io::kChunkBytes + io::kDirectAlignment);
      return memory.bytes.subspan(skew, size);
    }
  };

  void write_unit(const BoxUnit& unit, BoxFile& file, Scratch& scratch) {
    const PlannedBox& planned = boxes_[unit.box];
    try {
      if (planned.is_long()) {
        write_range(unit, planned, file, scratch);
      } else {
        write_runs(unit, planned, file, scratch);
      }
    } catch (Error& error) {
      error.in_tensor(planned.box->name);
      throw;
    }
    meter_->add(unit.size, planned.box->name);
  }

  // A part of one run.
  void write_range(const BoxUnit& unit, const PlannedBox& planned, BoxFile& file, Scratch& scratch) {
    const BoxRuns& runs = planned.runs;
    const std::uint64_t in_tensor = runs.offset_of(unit.from / runs.run_bytes()) + unit.from % runs.run_bytes();
    const std::uint64_t offset = planned.box->begin + in_tensor;
    const auto resident = planned.values.resident();
    const bool direct = file.is_direct() && unit.size >= 2 * io::kDirectAlignment;
    ConstBytes bytes;
    if (resident && !direct) {
      bytes = resident->subspan(unit.from, unit.size);
    } else {
      const MutableBytes room = scratch.room(offset % io::kDirectAlignment, unit.size);
      if (resident) {
        io::copy_bytes(room.data(), resident->data() + unit.from, unit.size);
      } else {
        planned.values.read(unit.from, room);
      }
      bytes = room;
    }
    if (options_.checksums)
      add_remainder(unit, extend_remainder(0, bytes), runs.tensor_bytes() - in_tensor - unit.size);
    if (direct) {
      file.write_direct(offset, bytes);
    } else {
      file.write(offset, bytes);
    }
  }

  // Whole runs.
  void write_runs(const BoxUnit& unit, const PlannedBox& planned, BoxFile& file, Scratch& scratch) {
    const BoxRuns& runs = planned.runs;
    const auto resident = planned.values.resident();
    ConstBytes bytes;
    if (resident) {
      bytes = resident->subspan(unit.from, unit.size);
    } else {
      const MutableBytes room = scratch.room(0, unit.size);
      planned.values.read(unit.from, room);
      bytes = room;
    }
    std::uint32_t remainder = 0;
    std::uint64_t end = 0;
    for (std::uint64_t run = unit.from / runs.run_bytes(); !bytes.empty(); ++run) {
      const std::uint64_t begin = runs.offset_of(run);
      const ConstBytes part = bytes.first(runs.run_bytes());
      if (options_.checksums) {
        if (end != 0) remainder = scratch.gaps.extend(remainder, begin - end);
        remainder = extend_remainder(remainder, part);
      }
      file.write(planned.box->begin + begin, part);
      end = begin + part.size();
      bytes = bytes.subspan(part.size());
    }
    if (options_.checksums) add_remainder(unit, remainder, runs.tensor_bytes() - end);
  }

  // `zeros` bytes of the tensor follow the unit.
  void add_remainder(const BoxUnit& unit, std::uint32_t remainder, std::uint64_t zeros) {
    remainders_[unit.box].fetch_xor(extend_remainder(remainder, zeros), std::memory_order_relaxed);
  }

  const std::span<const std::filesystem::path> files_;
  const BoxWriteOptions& options_;
  io::FileOps& ops_;
  std::vector<PlannedBox> boxes_;
  std::vector<std::atomic<std::uint32_t>> remainders_;  // by box
  std::uint64_t total_ = 0;
  io::ProgressMeter* meter_ = nullptr;
};

}  // namespace

void create_box_file(const std::filesystem::path& path, std::uint64_t size, io::FileOps& ops) {
  io::NewFile file(path.native(), std::nullopt, ops);
  if (size > 0) {
    const int done = io::retry_interrupted([&] { return ops.fallocate(file.fd(), 0, static_cast<off_t>(size)); });
    const bool cannot = done != 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL);
    if (done != 0 && !cannot) {
      throw io::io_error(errno, "cannot reserve the " + std::to_string(size) + " bytes of the file", path.native());
    }
    if (cannot && io::retry_interrupted([&] { return ops.ftruncate(file.fd(), static_cast<off_t>(size)); }) != 0) {
      throw io::io_error(errno, "cannot set the length of the file", path.native());
    }
  }
  file.finish(false);
}

std::vector<std::uint32_t> write_boxes(std::span<const std::filesystem::path> files, std::span<const NewBox> boxes,
                                       const BoxWriteOptions& options, io::FileOps& ops) {
  return BoxWrite(files, boxes, options, ops).run();
}

}  // namespace weightstore
