#include "py_source.h"

#include <string>

#include "py_object.h"
#include "weightstore/error.h"

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
    name_ = py::isinstance<py::str>(name) ? py::cast<std::string>(name) : std::string("<file object>");
    lock_ = share(py::module_::import("threading").attr("Lock")());
    file_ = share(std::move(file));
  }

  std::uint64_t size() const override { return size_; }
  std::string name() const override { return name_; }

  void read_at(std::uint64_t offset, MutableBytes out) const override {
    py::gil_scoped_acquire gil;
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

 private:
  std::uint64_t size_;
  std::string name_;
  SharedObject file_;
  SharedObject lock_;
};

}  // namespace

std::shared_ptr<const ByteSource> file_object_source(py::object file) {
  return std::make_shared<FileObjectSource>(std::move(file));
}

std::shared_ptr<const ByteSource> buffer_source(py::handle object) {
  SharedBytes shared = buffer_bytes(object);
  return memory_source(shared.bytes, std::move(shared.owner));
}

}  // namespace weightstore::python
