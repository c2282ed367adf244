#include "py_source.h"

#include <cstring>
#include <string>

#include "py_error.h"
#include "py_object.h"
#include "weightstore/error.h"
#include "weightstore/pager.h"

namespace weightstore::python {

namespace {

// The lock is a Python lock, not a mutex: waiting for it gives up the GIL, so that a thread which holds the lock and
// wants the GIL, and one which holds the GIL and wants the lock, cannot wait for each other.
class FileObjectSource : public ByteSource {
 public:
  explicit FileObjectSource(py::object file) {
    const py::object end = file.attr("seek")(0, 2);
    size_ = py::cast<std::uint64_t>(end.is_none() ? file.attr("tell")() : end);
    const py::object name = py::getattr(file, "name", py::none());
    if (py::isinstance<py::str>(name)) name_ = path_of_str(name).value_or(name_);
    lock_ = share(py::module_::import("threading").attr("Lock")());
    file_ = share(std::move(file));
  }

  std::uint64_t size() const override { return size_; }
  std::string name() const override { return name_; }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    py::gil_scoped_acquire gil;
    try {
      read_locked(offset, out);
    } catch (const py::error_already_set& error) {
      throw PythonError(error);
    }
  }

 private:
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
    while (!out.empty()) {
      const auto window = py::memoryview::from_memory(out.data(), static_cast<py::ssize_t>(out.size()));
      const py::object result = file.attr("readinto")(window);
      window.attr("release")();  // whatever the object kept of it, it cannot write there any more
      const auto count = result.is_none() ? 0 : py::cast<std::size_t>(result);
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

  std::uint64_t size_;
  std::string name_ = "<file object>";
  SharedObject file_;
  SharedObject lock_;
};

class CallableSource : public ByteSource {
 public:
  CallableSource(py::object read, std::uint64_t size) : size_(size), read_(share(std::move(read))) {}

  std::uint64_t size() const override { return size_; }
  std::string name() const override { return "<callable>"; }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    py::gil_scoped_acquire gil;
    try {
      const SharedBytes made = buffer_bytes(py::handle(read_.get())(offset, out.size()));
      if (made.bytes.size() < out.size()) throw OffloadEof(offset, out.size(), made.bytes.size());
      if (made.bytes.size() > out.size()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "asked for " + std::to_string(out.size()) + " bytes, got " + std::to_string(made.bytes.size()))
            .at_offset(offset);
      }
      py::gil_scoped_release nogil;
      std::memcpy(out.data(), made.bytes.data(), out.size());
    } catch (const py::error_already_set& error) {
      throw PythonError(error);
    }
  }

 private:
  std::uint64_t size_;
  SharedObject read_;
};

}  // namespace

std::shared_ptr<const ByteSource> file_object_source(py::object file) {
  return std::make_shared<FileObjectSource>(std::move(file));
}

std::shared_ptr<const ByteSource> callable_source(py::object read, std::uint64_t size) {
  return std::make_shared<CallableSource>(std::move(read), size);
}

std::shared_ptr<const ByteSource> buffer_source(py::handle object) {
  SharedBytes shared = buffer_bytes(object);
  return memory_source(shared.bytes, std::move(shared.owner));
}

}  // namespace weightstore::python
