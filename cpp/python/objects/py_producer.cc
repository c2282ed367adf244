#include "objects/py_producer.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "collectable.h"
#include "gil.h"
#include "objects/py_object.h"
#include "weightstore/error.h"

namespace weightstore::python {

namespace {

class CallableBytes : public ByteProducer, public KeepsObjects {
 public:
  CallableBytes(std::uint64_t size, py::object produce) : size_(size), produce_(share(std::move(produce))) {}

  std::uint64_t size() const override { return size_; }

  void fill(std::uint64_t offset, MutableBytes out) override {
    if (offset == 0) begin();
    while (!out.empty()) {
      if (chunk_.bytes.empty() && !next()) fail(offset);
      const std::size_t n = std::min(out.size(), chunk_.bytes.size());
      std::memcpy(out.data(), chunk_.bytes.data(), n);
      chunk_.bytes = chunk_.bytes.subspan(n);
      out = out.subspan(n);
      offset += n;
    }
    if (offset == size_ && (!chunk_.bytes.empty() || next())) fail(size_ + chunk_.bytes.size());
  }

  void finished() override {
    if (chunks_ == nullptr && chunk_.owner == nullptr) return;
    HoldGil gil;
    forget();
  }

  void visit(Visitor& visitor) const override {
    visitor(produce_.get());
    visitor(chunks_.get());
  }

 private:
  void begin() {
    HoldGil gil;
    forget();
    const py::object made = py::handle(produce_.get())();
    if (PyObject_CheckBuffer(made.ptr())) {
      chunk_ = buffer_bytes(made);
    } else {
      chunks_ = share(py::iter(made));
    }
  }

  // Moves to the next chunk that is not empty; false at the end.
  bool next() {
    HoldGil gil;
    chunk_ = {};
    if (chunks_ == nullptr) return false;
    while (chunk_.bytes.empty()) {
      chunk_ = {};
      const auto item = py::reinterpret_steal<py::object>(PyIter_Next(chunks_.get()));
      if (!item) {
        if (PyErr_Occurred() != nullptr) throw py::error_already_set();
        chunks_ = nullptr;
        return false;
      }
      chunk_ = buffer_bytes(item);
    }
    return true;
  }

  void forget() {
    chunk_ = {};
    chunks_ = nullptr;
  }

  [[noreturn]] void fail(std::uint64_t made) const {
    throw Error(ErrorCode::kInvalidArgument, "a deferred tensor produced " +
                                                 std::string(made > size_ ? "at least " : "") + std::to_string(made) +
                                                 " bytes where its type and shape need " + std::to_string(size_));
  }

  const std::uint64_t size_;
  const SharedObject produce_;
  SharedObject chunks_;  // changes with the GIL held
  SharedBytes chunk_;
};

}  // namespace

std::shared_ptr<ByteProducer> callable_bytes(std::uint64_t size, py::object produce) {
  return std::make_shared<CallableBytes>(size, std::move(produce));
}

}  // namespace weightstore::python
