#pragma once

// A Pager as Python sees it: with the type of its handles, and with tensors named by name or slot.

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "bindings.h"
#include "collectable.h"
#include "fork_guard.h"
#include "objects/py_error.h"
#include "weightstore/byte_source.h"
#include "weightstore/pager.h"

namespace weightstore::python {

// The object behind Python's `Pager`. Made and used with the GIL held; functions that wait for the pager release it,
// because reader threads may need it.
struct BoundPager {
  // A pager over a Reader, given as its Python object.
  BoundPager(std::unique_ptr<Pager> made, py::object type, py::object reader);
  // A pager over a raw source.
  BoundPager(std::unique_ptr<Pager> made, py::object type, std::shared_ptr<const ByteSource> source);
  ~BoundPager();

  void visit(Visitor& visitor) const;
  bool is_raw() const { return raw_source != nullptr; }

  std::unique_ptr<Pager> pager;
  std::optional<ForkGuard> fork_guard;
  const py::object handle_type;  // a subclass of PagedTensor
  const py::object reader;
  const std::shared_ptr<const ByteSource> raw_source;
};

// Runs `work`. Its errors become PagerErrors, except those about a file of a known format, which keep their class.
template <class Work>
auto with_pager_errors(Work work) {
  try {
    return work();
  } catch (const OffloadEof&) {
    throw;
  } catch (const BudgetExceeded&) {
    throw;
  } catch (const Error& error) {
    if (error.format() != Format::kUnknown) throw;
    throw ErrorOfPager(error);
  }
}

// The slot of a tensor given by name or slot; nullopt when there is no such tensor. Throws TypeError for other objects.
std::optional<std::size_t> find_slot(const BoundPager& self, const py::handle& id);
// The same, but throws TensorNotFound.
std::size_t slot_of(const BoundPager& self, const py::handle& id);
std::vector<std::size_t> slots_of(const BoundPager& self, const py::object& ids);

// A timeout in seconds, or None. Throws TypeError or ValueError.
std::optional<std::chrono::milliseconds> wait_of(const py::object& timeout);

}  // namespace weightstore::python
