#include <pybind11/stl.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/crc32c_parts.h"
#include "base/joined_source.h"
#include "base/little_endian.h"
#include "bindings.h"
#include "file/boxes/box_file.h"
#include "file/boxes/box_reader.h"
#include "file/boxes/box_writer.h"
#include "file/boxes/boxed_tensors.h"
#include "file/write_plan.h"
#include "formats/dcp/metadata.h"
#include "gil.h"
#include "io/checked_io.h"
#include "io/file_source.h"
#include "objects/py_object.h"
#include "objects/py_progress.h"
#include "objects/py_value.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

namespace weightstore::python {

namespace {

using Numbers = std::vector<std::uint64_t>;
using Strides = std::vector<std::int64_t>;

// (first block, begin and end in the tensor) of what several ranks write together
using RangeTuple = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
// (name, file, begin, item_bytes, shape, box begin, box size, address, strides in bytes, sign_bytes, negate, conjugate,
// shared range)
using BoxTuple = std::tuple<std::string, std::size_t, std::uint64_t, std::uint64_t, Numbers, Numbers, Numbers,
                            std::uintptr_t, Strides, std::size_t, bool, bool, std::optional<RangeTuple>>;

std::vector<std::uint32_t> write_boxes_of(const std::vector<py::object>& files, const std::vector<BoxTuple>& given,
                                          bool direct, bool checksums, unsigned threads, BoxExchange* exchange,
                                          py::object progress) {
  std::vector<std::filesystem::path> paths;
  for (const py::object& file : files) paths.push_back(to_path(file));
  std::vector<NewBox> boxes;
  boxes.reserve(given.size());
  for (const auto& [name, file, begin, item_bytes, shape, first, size, address, strides, signs, negate, conjugate,
                    range] : given) {
    NewBox box{name, file, begin, {item_bytes, shape, first, size}, {}};
    box.values.data = reinterpret_cast<const std::byte*>(address);
    box.values.item_bytes = item_bytes;
    box.values.shape = size;
    box.values.byte_strides = strides;
    box.values.sign_bytes = signs;
    box.values.negate = negate;
    box.values.conjugate = conjugate;
    if (range) box.shared = {std::get<0>(*range), std::get<1>(*range), std::get<2>(*range)};
    boxes.push_back(std::move(box));
  }
  const BoxWriteOptions options{direct, checksums, threads, make_progress(std::move(progress)), exchange};
  ReleaseGil nogil;
  return write_boxes(paths, boxes, options, io::system_file_ops());
}

// (reader, tensor, item_bytes, shape, box begin, box size, address, strides in bytes)
using WantedTuple =
    std::tuple<const Reader*, std::size_t, std::uint64_t, Numbers, Numbers, Numbers, std::uintptr_t, Strides>;

void read_boxes_of(const std::vector<WantedTuple>& given, unsigned threads, py::object callback) {
  std::vector<WantedBox> boxes;
  boxes.reserve(given.size());
  for (const auto& [reader, tensor, item_bytes, shape, first, size, address, strides] : given) {
    if (tensor >= reader->table().size()) throw py::index_error("no tensor has this number");
    boxes.push_back({reader, tensor, {item_bytes, shape, first, size}, reinterpret_cast<std::byte*>(address), strides});
  }
  const Progress progress = make_progress(std::move(callback));
  ReleaseGil nogil;
  read_boxes(boxes, threads, progress, io::system_file_ops());
}

// Pads a SafeTensors header with spaces, so that the data begins with a page of the file: tensors whose rows are whole
// pages are then written by whole pages. Returns the number of spaces.
std::uint64_t align_data(std::string& header) {
  constexpr std::uint64_t kPage = 4096;
  const std::uint64_t padding = (kPage - header.size() % kPage) % kPage;
  header.append(padding, ' ');
  std::string length;
  append_little_endian(length, header.size() - 8, 8);
  header.replace(0, 8, length);
  return padding;
}

using TensorTuple = std::tuple<std::string, std::string, Shape>;  // name, dtype, shape

// The header, where each tensor begins, and the size of the file.
std::tuple<py::bytes, Numbers, std::uint64_t> plan_safetensors(
    const std::vector<TensorTuple>& tensors, const std::vector<std::pair<std::string, std::string>>& metadata,
    const std::optional<std::vector<std::uint32_t>>& crcs) {
  if (crcs && crcs->size() != tensors.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                std::to_string(crcs->size()) + " checksums for " + std::to_string(tensors.size()) + " tensors");
  }
  Writer writer;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, dtype, shape] = tensors[i];
    const auto size = contiguous_bytes(dtype_named(dtype), shape);
    if (!size) {
      throw Error(ErrorCode::kInvalidArgument, "type " + dtype + " and this shape do not make a number of whole bytes")
          .in_tensor(name);
    }
    NewTensor tensor{name, dtype_named(dtype), shape, deferred_bytes(*size, {}), std::nullopt, nullptr};
    if (crcs) tensor.crc32c = (*crcs)[i];
    writer.add(std::move(tensor));
  }
  for (const auto& [key, value] : metadata) writer.set_metadata(key, value);
  Layout layout;
  {
    ReleaseGil nogil;
    layout = plan_file(writer, Format::kSafetensors, {});
  }
  const std::uint64_t padding = align_data(layout.header);
  Numbers begins(tensors.size());
  for (const Layout::Placement& placement : layout.placements) begins[placement.tensor] = placement.begin + padding;
  return {py::bytes(layout.header), std::move(begins), layout.file_size + padding};
}

// A file inside a file.
std::shared_ptr<const ByteSource> record_of(std::shared_ptr<const ByteSource> file, std::uint64_t offset,
                                            std::uint64_t length) {
  const auto end = checked_add(offset, length);
  if (!end || *end > file->size()) {
    throw Error(ErrorCode::kCorrupt, "a record of " + std::to_string(length) +
                                         " bytes ends after the file, which has " + std::to_string(file->size()) +
                                         " bytes")
        .in_file(file->name())
        .at_offset(offset);
  }
  std::string name = file->name();
  std::vector<SourceRange> ranges{{std::move(file), offset, length}};
  return std::make_shared<JoinedSource>(std::move(ranges), std::move(name));
}

// (name, dtype, shape in files, item_bytes, shape, parts), each part (reader, tensor, begin, size)
using PartTuple = std::tuple<const Reader*, std::size_t, Numbers, Numbers>;
using BoxedTuple = std::tuple<std::string, std::string, Shape, std::uint64_t, Numbers, std::vector<PartTuple>>;

Reader boxed_reader(const std::string& name, const std::vector<BoxedTuple>& tensors,
                    const std::vector<std::tuple<std::string, std::string, std::string>>& left_out,
                    const std::string& verify) {
  ReadOptions options;
  options.verify = verify == "full" ? Verify::kFull : verify == "lazy" ? Verify::kLazy : Verify::kOff;
  BoxedTensors boxed(name, options);
  for (const auto& [tensor, dtype, stored_shape, item_bytes, shape, given] : tensors) {
    std::vector<BoxedTensors::Part> parts;
    for (const auto& [reader, number, begin, size] : given) {
      if (number >= reader->table().size()) throw py::index_error("no tensor has this number");
      parts.push_back({*reader, number, begin, size});
    }
    boxed.add(tensor, dtype_named(dtype), stored_shape, item_bytes, shape, std::move(parts));
  }
  std::vector<LeftOut> others;
  for (const auto& [other, type, reason] : left_out) others.push_back({other, type, reason});
  boxed.set_left_out(std::move(others));
  ReleaseGil nogil;
  return std::move(boxed).finish();
}

// The readers share one open file.
std::vector<Reader> open_records(const py::object& path,
                                 const std::vector<std::pair<std::uint64_t, std::uint64_t>>& records) {
  const auto target = to_path(path);
  ReleaseGil nogil;
  ReadOptions options;
  options.map = false;
  const auto file = io::open_file(target, false, io::system_file_ops());
  std::vector<Reader> readers;
  readers.reserve(records.size());
  for (const auto& [offset, length] : records) {
    readers.push_back(Reader::open(record_of(file, offset, length), options));
  }
  return readers;
}

// The bytes of a record that is not a tensor.
py::bytes read_record(const py::object& path, std::uint64_t offset, std::uint64_t length) {
  const auto target = to_path(path);
  std::string bytes;
  {
    ReleaseGil nogil;
    const auto record = record_of(io::open_file(target, false, io::system_file_ops()), offset, length);
    bytes.resize(length);
    record->read_at(0, std::as_writable_bytes(std::span(bytes)));
  }
  return py::bytes(bytes);
}

// False where the file system cannot do it.
bool exchange_names(const py::object& first, const py::object& second) {
  const auto a = to_path(first);
  const auto b = to_path(second);
  ReleaseGil nogil;
  io::FileOps& ops = io::system_file_ops();
  if (ops.exchange(a.c_str(), b.c_str()) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  throw io::io_error(errno, "cannot exchange it for '" + a.native() + "'", b.native());
}

}  // namespace

void init_boxes(py::module_& m) {
  const auto threads = py::arg("threads") = 0;
  const auto progress = py::arg("progress") = py::none();
  m.def(
      "create_file",
      [](const py::object& path, std::uint64_t size) {
        const auto target = to_path(path);
        ReleaseGil nogil;
        create_box_file(target, size, io::system_file_ops());
      },
      py::arg("path"), py::arg("size"), "Creates a file and reserves its blocks.");
  m.def(
      "sync_files",
      [](const std::vector<py::object>& files) {
        std::vector<std::filesystem::path> paths;
        for (const py::object& file : files) paths.push_back(to_path(file));
        ReleaseGil nogil;
        sync_files(paths, io::system_file_ops());
      },
      py::arg("paths"), "Syncs files that were written, by whatever process.");
  m.def("write_boxes", &write_boxes_of, py::arg("files"), py::arg("boxes"), py::kw_only(), py::arg("direct") = true,
        py::arg("checksums") = true, threads, py::arg("exchange") = py::none(), progress,
        "Writes boxes of tensors into existing files. Returns the remainder of each for crc32c_of_remainder().");
  py::class_<BoxExchange>(m, "BoxExchange", "Blocks that the ranks of a machine write together.")
      .def(py::init([](int fd, std::uint32_t rank, unsigned members, std::uint64_t blocks,
                       const std::vector<std::pair<std::uint32_t, int>>& peers, double timeout) {
             std::vector<BoxExchange::Peer> others;
             for (const auto& [other, pidfd] : peers) others.push_back({other, pidfd});
             const std::chrono::milliseconds limit(static_cast<std::int64_t>(timeout * 1000));
             return std::make_unique<BoxExchange>(fd, rank, members, blocks, std::move(others), limit);
           }),
           py::arg("fd"), py::arg("rank"), py::arg("members"), py::arg("blocks"), py::arg("peers"), py::arg("timeout"))
      .def_property_readonly_static("BLOCK_BYTES", [](const py::object&) { return io::kChunkBytes; })
      .def_static("memory_bytes", &BoxExchange::memory_bytes, py::arg("members"), py::arg("blocks"))
      .def("wait_for_all", &BoxExchange::wait_for_all, py::call_guard<ReleaseGil>())
      .def("fail", &BoxExchange::fail);
  m.def("read_boxes", &read_boxes_of, py::arg("boxes"), py::kw_only(), threads, progress,
        "Reads boxes of tensors into strided memory.");
  m.def("crc32c_of_remainder", &crc32c_of_remainder, py::arg("remainder"), py::arg("size"),
        "The crc32c of bytes whose parts have remainders that are `remainder` together (XOR).");
  m.def("plan_safetensors", &plan_safetensors, py::arg("tensors"), py::arg("metadata"), py::arg("checksums"),
        "(header, where each tensor begins, size of the file)");
  m.def("exchange", &exchange_names, py::arg("first"), py::arg("second"),
        "Exchanges two names at once. False where the file system cannot.");
  m.def("boxed_reader", &boxed_reader, py::arg("name"), py::arg("tensors"), py::arg("left_out"), py::arg("verify"),
        "A Reader of tensors that are put together from boxes.");
  m.def("open_records", &open_records, py::arg("path"), py::arg("records"),
        "Readers of files inside a file, each given as (offset, length).");
  m.def("read_record", &read_record, py::arg("path"), py::arg("offset"), py::arg("length"));
  m.def(
      "read_dcp_metadata",
      [](const py::object& path) {
        const auto target = to_path(path);
        Value value;
        {
          ReleaseGil nogil;
          value = dcp::read_metadata(*io::open_file(target, false, io::system_file_ops()));
        }
        return to_python(value);
      },
      py::arg("path"), "What the `.metadata` of torch.distributed.checkpoint says, as plain data.");
}

}  // namespace weightstore::python
