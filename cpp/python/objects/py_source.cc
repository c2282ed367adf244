#include "objects/py_source.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "collectable.h"
#include "gil.h"
#include "io/file_source.h"
#include "objects/py_error.h"
#include "objects/py_object.h"
#include "weightstore/error.h"
#include "weightstore/pager.h"

namespace weightstore::python {

namespace {

std::string name_of_file(const py::object& file) {
  const py::object name = py::getattr(file, "name", py::none());
  const std::string unnamed = "<file object>";
  return py::isinstance<py::str>(name) ? path_of_str(name).value_or(unnamed) : unnamed;
}

// Whether the object is, or buffers, a file of the system and nothing else: its bytes are those of its descriptor.
// Other objects with a fileno() may change what they read, as gzip does.
bool is_plain_file(const py::object& file) {
  const auto io = py::module_::import("io");
  const auto is_a = [&](const py::object& object, const char* type) { return py::type::of(object).is(io.attr(type)); };
  if (is_a(file, "FileIO")) return true;
  return (is_a(file, "BufferedReader") || is_a(file, "BufferedRandom")) && is_a(file.attr("raw"), "FileIO");
}

// A descriptor of the same file that stays open when the object is closed; -1 when there is none to be read.
int descriptor_of(const py::object& file) {
  if (!is_plain_file(file) || !py::cast<bool>(file.attr("readable")())) return -1;
  const int fd = py::cast<int>(file.attr("fileno")());
  struct stat status;
  if (io::system_file_ops().fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return -1;
  return io::system_file_ops().dup(fd);
}

// The lock is a Python lock, not a mutex: waiting for it gives up the GIL, so that a thread which holds the lock and
// wants the GIL, and one which holds the GIL and wants the lock, cannot wait for each other.
//
// In a child process the object is refused: it may share its position with the object of the parent, so that each would
// move it while the other reads. Bytes in memory are the child's own.
class FileObjectSource : public ByteSource, public KeepsObjects {
 public:
  FileObjectSource(py::object file, std::uint64_t size)
      : size_(size),
        name_(name_of_file(file)),
        in_memory_(py::type::of(file).is(py::module_::import("io").attr("BytesIO"))),
        process_(::getpid()),
        lock_(new_lock()),
        file_(share(std::move(file))) {}

  std::uint64_t size() const override { return size_; }
  std::string name() const override { return name_; }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    HoldGil gil;
    try {
      if (process_ != ::getpid()) adopt_after_fork();
      read_locked(offset, out);
    } catch (const py::error_already_set& error) {
      throw PythonError(error);
    }
  }

  void visit(Visitor& visitor) const override {
    visitor(file_.get());
    visitor(lock_.get());
  }

 private:
  static SharedObject new_lock() { return share(py::module_::import("threading").attr("Lock")()); }

  void adopt_after_fork() const {
    if (!in_memory_) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a file object cannot be read in a forked process, which would share its position with the parent; "
                  "give a path, a file of open(path, 'rb'), or open the file in the child")
          .in_file(name_);
    }
    // A thread that exists only in the parent may hold the lock.
    lock_ = new_lock();
    process_ = ::getpid();
  }

  static constexpr std::size_t kStagingBytes = std::size_t{8} << 20;

  static py::object staging_memory(std::size_t bytes) {
    return py::module_::import("builtins").attr("bytearray")(std::min(bytes, kStagingBytes));
  }

  static std::size_t count_of(const py::object& result) { return result.is_none() ? 0 : py::cast<std::size_t>(result); }

  // For BytesIO, which keeps nothing of the view.
  static std::size_t read_directly(py::handle file, MutableBytes out) {
    return count_of(
        file.attr("readinto")(py::memoryview::from_memory(out.data(), static_cast<py::ssize_t>(out.size()))));
  }

  // Any other object may keep the view, or arrays made of it, for as long as it likes. So it gets a view of memory that
  // Python owns, not of ours.
  static std::size_t read_staged(py::handle file, const py::object& staging, MutableBytes out) {
    const py::object all = py::memoryview(staging);
    const std::size_t asked = std::min(out.size(), kStagingBytes);
    const std::size_t count = count_of(file.attr("readinto")(all[py::slice(0, static_cast<py::ssize_t>(asked), 1)]));
    if (count > asked) return 0;
    // `all` keeps the bytearray from being resized.
    std::memcpy(out.data(), PyByteArray_AsString(staging.ptr()), count);
    return count;
  }

  void read_locked(std::uint64_t offset, MutableBytes out) const {
    const py::handle file(file_.get());
    const py::handle lock(lock_.get());
    lock.attr("acquire")();
    struct Unlock {
      py::handle lock;
      ~Unlock() {
        try {
          lock.attr("release")();
        } catch (py::error_already_set& error) {
          error.discard_as_unraisable("release");
        }
      }
    } unlock{lock};
    file.attr("seek")(offset);
    const py::object staging = in_memory_ ? py::object() : staging_memory(out.size());
    while (!out.empty()) {
      const std::size_t count = staging ? read_staged(file, staging, out) : read_directly(file, out);
      if (count == 0 || count > out.size()) {
        throw Error(ErrorCode::kIo, "the file object ended at byte " + std::to_string(offset) + " of " +
                                        std::to_string(size_) + "; it has shrunk since it was opened")
            .in_file(name_)
            .at_offset(offset);
      }
      out = out.subspan(count);
      offset += count;
    }
  }

  const std::uint64_t size_;
  const std::string name_;
  const bool in_memory_;
  // These change with the GIL held.
  mutable pid_t process_;
  mutable SharedObject lock_;
  const SharedObject file_;
};

class CallableSource : public ByteSource, public KeepsObjects {
 public:
  CallableSource(py::object read, std::uint64_t size) : size_(size), read_(share(std::move(read))) {}

  std::uint64_t size() const override { return size_; }
  std::string name() const override { return "<callable>"; }
  void visit(Visitor& visitor) const override { visitor(read_.get()); }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    HoldGil gil;
    try {
      const SharedBytes made = buffer_bytes(py::handle(read_.get())(offset, out.size()));
      if (made.bytes.size() < out.size()) throw OffloadEof(offset, out.size(), made.bytes.size());
      if (made.bytes.size() > out.size()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "asked for " + std::to_string(out.size()) + " bytes, got " + std::to_string(made.bytes.size()))
            .at_offset(offset);
      }
      const ReleaseGil nogil;
      std::memcpy(out.data(), made.bytes.data(), out.size());
    } catch (const py::error_already_set& error) {
      throw PythonError(error);
    }
  }

 private:
  const std::uint64_t size_;
  const SharedObject read_;
};

}  // namespace

std::shared_ptr<const ByteSource> file_object_source(py::object file) {
  const py::object end = file.attr("seek")(0, 2);  // also writes out what was buffered
  const auto size = py::cast<std::uint64_t>(end.is_none() ? file.attr("tell")() : end);
  if (const int fd = descriptor_of(file); fd >= 0) {
    return io::adopt_file(fd, name_of_file(file), false, io::system_file_ops());
  }
  return std::make_shared<FileObjectSource>(std::move(file), size);
}

std::shared_ptr<const ByteSource> callable_source(py::object read, std::uint64_t size) {
  return std::make_shared<CallableSource>(std::move(read), size);
}

std::shared_ptr<const ByteSource> buffer_source(py::handle object) {
  SharedBytes shared = buffer_bytes(object);
  return memory_source(shared.bytes, std::move(shared.owner));
}

}  // namespace weightstore::python
