#include "pager/paged_tensor.h"

#include <new>
#include <utility>

#include "memory.h"

namespace weightstore::python {

namespace py = pybind11;

namespace {

struct Object {
  PyObject_HEAD ResidentTensor tensor;
  PyObject* pager;
};

Object* as_object(PyObject* self) { return reinterpret_cast<Object*>(self); }

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  as_object(self)->tensor.~ResidentTensor();
  Py_XDECREF(as_object(self)->pager);
  type->tp_free(self);
  Py_DECREF(type);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_object(self)->pager);
  return 0;
}

PyObject* enter(PyObject* self, PyObject*) { return Py_NewRef(self); }

PyObject* release(PyObject* self, PyObject*) {
  as_object(self)->tensor.release();
  Py_RETURN_NONE;
}

PyObject* exit_with(PyObject* self, PyObject* const*, Py_ssize_t) { return release(self, nullptr); }

PyObject* clone(PyObject* self, PyObject*) {
  return new_paged_tensor(Py_TYPE(self), as_object(self)->tensor.clone(), as_object(self)->pager);
}

bool check_held(PyObject* self) {
  if (as_object(self)->tensor) return true;
  PyErr_SetString(PyExc_ValueError, "the tensor was released");
  return false;
}

PyObject* memory(PyObject* self, PyObject* writable) {
  if (!check_held(self)) return nullptr;
  try {
    if (writable != Py_True) return py::cast(Memory(as_object(self)->tensor.share())).release().ptr();
    auto shared = as_object(self)->tensor.share_writable();
    if (!shared) Py_RETURN_NONE;
    return py::cast(Memory(std::move(*shared))).release().ptr();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

PyObject* get_slot(PyObject* self, void*) { return PyLong_FromSize_t(as_object(self)->tensor.slot()); }
PyObject* get_nbytes(PyObject* self, void*) {
  if (!check_held(self)) return nullptr;
  return PyLong_FromSize_t(as_object(self)->tensor.size());
}
PyObject* get_pager(PyObject* self, void*) { return Py_NewRef(as_object(self)->pager); }
PyObject* get_released(PyObject* self, void*) { return PyBool_FromLong(!as_object(self)->tensor); }

PyMethodDef methods[] = {
    {"__enter__", enter, METH_NOARGS, nullptr},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(exit_with)), METH_FASTCALL, nullptr},
    {"release", release, METH_NOARGS, "Lets the tensor go; arrays and tensors made from it hold it by themselves."},
    {"clone", clone, METH_NOARGS, "Another handle of the same tensor, to be released by itself."},
    {"__copy__", clone, METH_NOARGS, nullptr},
    {"memory", memory, METH_O, "Its bytes; None when they cannot be had writable."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"slot", get_slot, nullptr, nullptr, nullptr},   {"nbytes", get_nbytes, nullptr, nullptr, nullptr},
    {"pager", get_pager, nullptr, nullptr, nullptr}, {"released", get_released, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

py::object make_paged_tensor_type() {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
      {Py_tp_methods, methods},
      {Py_tp_getset, properties},
      {0, nullptr},
  };
  PyType_Spec spec = {"weightstore._core.PagedTensor", sizeof(Object), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(type);
}

void prepare_handle_type(PyTypeObject* type) {
  const PyTypeObject* base = type->tp_base;
  while (base != nullptr && base->tp_dealloc != dealloc) base = base->tp_base;
  const bool adds_nothing =
      base != nullptr && type->tp_basicsize == base->tp_basicsize && type->tp_dictoffset == base->tp_dictoffset &&
      type->tp_weaklistoffset == base->tp_weaklistoffset && type->tp_finalize == nullptr && type->tp_del == nullptr;
  if (adds_nothing) type->tp_dealloc = dealloc;
}

PyObject* new_paged_tensor(PyTypeObject* type, ResidentTensor tensor, PyObject* pager) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  new (&as_object(self)->tensor) ResidentTensor(std::move(tensor));
  as_object(self)->pager = Py_NewRef(pager);
  return self;
}

}  // namespace weightstore::python
