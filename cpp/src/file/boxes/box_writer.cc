#include "file/boxes/box_writer.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/crc32c_parts.h"
#include "file/boxes/box_file.h"
#include "file/boxes/planned_box.h"
#include "file/boxes/shared_units.h"
#include "io/checked_io.h"
#include "io/copy_bytes.h"
#include "io/new_file.h"
#include "io/parallel.h"
#include "io/progress_meter.h"
#include "weightstore/error.h"

// The work is cut into units of up to 4 MiB. A unit is a part of a long run, cut where the file offset is a multiple of
// 4 MiB, so that direct writes are aligned; or it is many short runs. Only the two ends of a long run, which share
// their blocks with the neighbours in the file, go through the page cache. What ranks write together comes last: see
// box_exchange.h.

namespace weightstore {
namespace {

// Bytes [from, from + size) of a box, in row-major order.
struct BoxUnit {
  std::size_t box;
  std::uint64_t from;
  std::uint64_t size;
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
    BoxFiles files(files_, options_.direct, ops_);
    write_alone(files);
    write_together(files);
    meter.report_total();
    if (!options_.checksums) return {};
    return std::vector<std::uint32_t>(remainders_.begin(), remainders_.end());
  }

 private:
  void write_alone(BoxFiles& files) {
    std::vector<BoxUnit> units;
    for (const std::size_t i : own_boxes()) add_units(boxes_[i], i, units);
    run(units, [&](const BoxUnit& unit, BoxScratch& scratch, const io::StopFlag&) {
      write_unit(unit, *files.open(boxes_[unit.box].box->file), scratch);
    });
  }

  void write_together(BoxFiles& files) {
    const std::vector<SharedUnit> units = shared_units(boxes_);
    if (units.empty()) return;
    if (options_.exchange == nullptr) throw Error(ErrorCode::kInvalidArgument, "boxes to exchange, and no exchange");
    run(units, [&](const SharedUnit& unit, BoxScratch& scratch, const io::StopFlag& stop) {
      write_shared(unit, files, scratch, stop);
    });
  }

  // Calls work(unit, scratch, stop) on all threads.
  template <class Unit, class Work>
  void run(const std::vector<Unit>& units, const Work& work) {
    const unsigned threads = options_.threads == 0 ? io::default_threads() : options_.threads;
    std::vector<BoxScratch> scratch(std::max<std::size_t>(threads, 1));
    const auto watch = options_.progress ? [this] { meter_->report(); } : std::function<void()>();
    io::parallel_for(
        units.size(), threads,
        [&](std::size_t i, const io::Worker& worker) {
          try {
            work(units[i], scratch[worker.number], worker.stop);
          } catch (Error& error) {
            // Now, because threads of this rank may wait for other ranks.
            if (options_.exchange != nullptr) options_.exchange->fail();
            error.in_tensor(boxes_[units[i].box].box->name);
            throw;
          }
        },
        watch);
  }

  // In the order of the files.
  std::vector<std::size_t> own_boxes() const {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      if (!boxes_[i].box->shared && boxes_[i].runs.bytes() > 0) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const NewBox& left = *boxes_[a].box;
      const NewBox& right = *boxes_[b].box;
      return std::pair(left.file, left.begin) < std::pair(right.file, right.begin);
    });
    return order;
  }

  void write_shared(const SharedUnit& unit, BoxFiles& files, BoxScratch& scratch, const io::StopFlag& stop) {
    const PlannedBox& planned = boxes_[unit.box];
    const std::uint64_t offset = planned.box->begin + unit.begin;
    const MutableBytes slot = options_.exchange->enter(unit.block, stop);
    if (slot.empty()) return;
    const MutableBytes block = slot.subspan(offset % io::kDirectAlignment, unit.end - unit.begin);
    const std::uint64_t copied = copy_runs(unit, planned, block, scratch);
    meter_->add(copied, planned.box->name);
    if (!options_.exchange->add(unit.block, copied, block.size())) return;
    if (options_.checksums) {
      const BoxUnit whole{unit.box, 0, 0};
      add_remainder(whole, extend_remainder(0, block), planned.runs.tensor_bytes() - unit.end);
    }
    const std::shared_ptr<BoxFile> file = files.open(planned.box->file);
    if (file->is_direct()) {
      file->write_direct(offset, block);
    } else {
      file->write(offset, block);
    }
    options_.exchange->leave(unit.block);
  }

  void write_unit(const BoxUnit& unit, BoxFile& file, BoxScratch& scratch) {
    const PlannedBox& planned = boxes_[unit.box];
    if (planned.is_long()) {
      write_range(unit, planned, file, scratch);
    } else {
      write_runs(unit, planned, file, scratch);
    }
    meter_->add(unit.size, planned.box->name);
  }

  // A part of one run.
  void write_range(const BoxUnit& unit, const PlannedBox& planned, BoxFile& file, BoxScratch& scratch) {
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
  void write_runs(const BoxUnit& unit, const PlannedBox& planned, BoxFile& file, BoxScratch& scratch) {
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
  try {
    return BoxWrite(files, boxes, options, ops).run();
  } catch (...) {
    if (options.exchange != nullptr) options.exchange->fail();
    throw;
  }
}

}  // namespace weightstore
