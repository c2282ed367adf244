#include "hash_table.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "element_memory.h"
#include "tensor_bridge.h"
#include "weightstore/error.h"

namespace weightstore::torch_bridge {
namespace {

Error invalid(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

std::uint64_t natural(const char* what, std::int64_t number) {
  if (number < 0) throw invalid(std::string(what) + " is " + std::to_string(number) + "; expected 0 or more");
  return static_cast<std::uint64_t>(number);
}

Shape shape_of(const std::vector<std::int64_t>& sizes) {
  Shape shape;
  for (const std::int64_t size : sizes) shape.push_back(natural("a dimension", size));
  return shape;
}

DType dtype_of_number(std::int64_t number) {
  if (number >= 0 && number < static_cast<std::int64_t>(c10::ScalarType::NumOptions)) {
    if (const auto dtype = dtype_of(static_cast<c10::ScalarType>(number))) return *dtype;
  }
  throw invalid("dtype " + std::to_string(number) + " is none that a table can hold");
}

std::string sizes_text(at::IntArrayRef sizes) {
  std::string text = "[";
  for (const std::int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// Type, shape and device, for an error message.
std::string text_of(const at::Tensor& tensor) {
  return c10::str(c10::toString(tensor.scalar_type()), " ", sizes_text(tensor.sizes()), " on ", tensor.device().str());
}

// Throws unless the elements lie in memory. `what` says which tensor it is.
void require_elements(const std::string& what, const at::Tensor& tensor) {
  if (const auto why = why_no_memory(tensor)) throw invalid(what + ": the tensor " + *why);
}

// The values as they look, in row-major memory.
at::Tensor plain(const std::string& what, const at::Tensor& tensor) {
  if (is_plain_memory(tensor)) return tensor;
  at::Tensor copy = tensor.resolve_conj().resolve_neg().contiguous();
  require_elements(what, copy);  // a subclass may answer with anything
  return copy;
}

// Ids in plain memory, kept alive by the tensor.
at::Tensor checked_ids(const at::Tensor& ids, const char* what = "ids") {
  require_elements(what, ids);
  if (!ids.device().is_cpu() || ids.scalar_type() != c10::ScalarType::Long || ids.dim() != 1) {
    throw invalid(std::string(what) + " are " + text_of(ids) + "; expected int64 of one dimension on the CPU");
  }
  return plain(what, ids);
}

std::span<const std::int64_t> span_of(const at::Tensor& ids) {
  return {ids.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(ids.numel())};
}

std::vector<std::int64_t> row_sizes(const SlotInfo& slot, std::int64_t count) {
  std::vector<std::int64_t> sizes{count};
  for (const std::uint64_t dim : slot.shape) sizes.push_back(static_cast<std::int64_t>(dim));
  return sizes;
}

std::string values_of(const SlotInfo& slot) { return "values of slot '" + printable(slot.name) + "'"; }

void check_values(const at::Tensor& values, const SlotInfo& slot, std::int64_t count) {
  require_elements(values_of(slot), values);
  const auto sizes = row_sizes(slot, count);
  if (values.device().is_cpu() && dtype_of(values.scalar_type()) == slot.dtype &&
      values.sizes() == at::IntArrayRef(sizes)) {
    return;
  }
  throw invalid(values_of(slot) + " are " + text_of(values) + "; expected " + std::string(name_of(slot.dtype)) + " " +
                sizes_text(sizes) + " on the CPU");
}

ConstBytes bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

MutableBytes writable_bytes(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

at::Tensor new_tensor(const std::vector<std::int64_t>& sizes, c10::ScalarType type) {
  return at::empty(sizes, at::TensorOptions(type));
}

at::Tensor tensor_of(const std::vector<std::int64_t>& numbers) {
  at::Tensor tensor = new_tensor({static_cast<std::int64_t>(numbers.size())}, c10::ScalarType::Long);
  std::copy(numbers.begin(), numbers.end(), tensor.mutable_data_ptr<std::int64_t>());
  return tensor;
}

c10::ScalarType type_of(const SlotInfo& slot) {
  TensorInfo info;
  info.name = slot.name;
  info.dtype = slot.dtype;
  return require_scalar_type(info);
}

}  // namespace

at::Tensor HashTableSnapshot::ids(std::int64_t child) const {
  const auto producer = snapshot_->ids(natural("the child", child), snapshot_->all_stripes());
  at::Tensor out = new_tensor({static_cast<std::int64_t>(producer->size() / 8)}, c10::ScalarType::Long);
  producer->fill(0, writable_bytes(out));
  return out;
}

at::Tensor HashTableSnapshot::slot(const std::string& name, std::int64_t child) const {
  for (std::size_t i = 0; i < snapshot_->slots().size(); ++i) {
    const SlotInfo& info = snapshot_->slots()[i];
    if (info.name != name) continue;
    const auto producer = snapshot_->slot(i, natural("the child", child), snapshot_->all_stripes());
    at::Tensor out =
        new_tensor(row_sizes(info, static_cast<std::int64_t>(producer->size() / info.row_bytes)), type_of(info));
    producer->fill(0, writable_bytes(out));
    return out;
  }
  throw Error(ErrorCode::kNotFound, "table '" + printable(snapshot_->name()) + "' had no slot '" + printable(name) +
                                        "' when the snapshot was taken");
}

HashTable::HashTable(std::string name, std::vector<std::int64_t> shape, std::int64_t dtype, std::int64_t slice_begin,
                     std::int64_t slice_end, std::int64_t slice_size, std::int64_t page_rows,
                     std::vector<std::string> children) {
  TableOptions options;
  options.name = std::move(name);
  options.shape = shape_of(shape);
  options.dtype = dtype_of_number(dtype);
  options.buckets = {natural("slice_begin", slice_begin), natural("slice_end", slice_end),
                     natural("slice_size", slice_size)};
  if (natural("page_rows", page_rows) > std::numeric_limits<std::uint32_t>::max()) {
    throw invalid("pages of " + std::to_string(page_rows) + " rows are too large");
  }
  options.page_rows = static_cast<std::uint32_t>(page_rows);
  options.children = std::move(children);
  table_ = std::make_shared<weightstore::HashTable>(std::move(options));
}

void HashTable::add_slot(const std::string& name, std::vector<std::int64_t> shape, std::int64_t dtype, double fill) {
  table_->add_slot(name, shape_of(shape), dtype_of_number(dtype), {Initializer::Kind::kConstant, fill});
}

void HashTable::set_initializer(const std::string& kind, double a, double b, std::int64_t seed) {
  const Initializer::Kind known = initializer_kind(kind);
  if (kind == "zeros" && a != 0) throw invalid("the initializer 'zeros' has no value; ask for 'constant'");
  table_->set_initializer(0, {known, a, b, static_cast<std::uint64_t>(seed)});
}

at::Tensor HashTable::empty_rows(const SlotInfo& slot, std::int64_t count) const {
  return new_tensor(row_sizes(slot, count), type_of(slot));
}

std::tuple<at::Tensor, at::Tensor> HashTable::lookup(const at::Tensor& ids, bool insert) {
  const at::Tensor checked = checked_ids(ids);
  at::Tensor out = empty_rows(slot_info(0), checked.numel());
  at::Tensor rows = lookup_into(checked, insert, out);
  return {std::move(rows), std::move(out)};
}

at::Tensor HashTable::lookup_out(const at::Tensor& ids, bool insert, at::Tensor out) {
  const at::Tensor checked = checked_ids(ids);
  check_values(out, slot_info(0), checked.numel());
  if (!is_plain_memory(out)) {
    throw invalid("the output of a lookup must be contiguous, and no conjugate or negative view");
  }
  if (out.requires_grad() && at::GradMode::is_enabled()) {
    throw invalid(
        "the output of a lookup requires grad, but what is written to it has none; look up inside torch.no_grad(), or "
        "into out.detach()");
  }
  // So that autograd refuses to go on with what it needed of the values before.
  if (!out.is_inference()) out.unsafeGetTensorImpl()->bump_version();
  return lookup_into(checked, insert, out);
}

at::Tensor HashTable::lookup_into(const at::Tensor& checked_ids, bool insert, const at::Tensor& out) {
  at::Tensor rows = new_tensor({checked_ids.numel()}, c10::ScalarType::Long);
  const std::span numbers(rows.mutable_data_ptr<std::int64_t>(), static_cast<std::size_t>(rows.numel()));
  table_->lookup(span_of(checked_ids), insert, numbers, writable_bytes(out));
  return rows;
}

void HashTable::insert(const at::Tensor& ids, const at::Tensor& embeddings) {
  const at::Tensor checked = checked_ids(ids);
  check_values(embeddings, slot_info(0), checked.numel());
  const at::Tensor values = plain("embeddings", embeddings);
  table_->insert(span_of(checked), bytes_of(values));
}

std::int64_t HashTable::erase(const at::Tensor& ids) {
  const at::Tensor checked = checked_ids(ids);
  return static_cast<std::int64_t>(table_->erase(span_of(checked)));
}

at::Tensor HashTable::contains(const at::Tensor& ids) const {
  const at::Tensor checked = checked_ids(ids);
  at::Tensor found = new_tensor({checked.numel()}, c10::ScalarType::Bool);
  table_->contains(span_of(checked),
                   {static_cast<std::uint8_t*>(found.mutable_data_ptr()), static_cast<std::size_t>(found.numel())});
  return found;
}

at::Tensor HashTable::read_slot(const std::string& name, const at::Tensor& ids) const {
  const at::Tensor checked = checked_ids(ids);
  const std::size_t slot = table_->slot_index(name);
  at::Tensor values = empty_rows(slot_info(slot), checked.numel());
  table_->read_slot(slot, span_of(checked), writable_bytes(values));
  return values;
}

std::int64_t HashTable::write_slot(const std::string& name, const at::Tensor& ids, const at::Tensor& values) {
  const at::Tensor checked = checked_ids(ids);
  const std::size_t slot = table_->slot_index(name);
  check_values(values, slot_info(slot), checked.numel());
  const at::Tensor own = plain("values", values);
  return static_cast<std::int64_t>(table_->write_slot(slot, span_of(checked), bytes_of(own)));
}

at::Tensor HashTable::read_slot_rows(const std::string& name, const at::Tensor& rows) const {
  const at::Tensor checked = checked_ids(rows, "row numbers");
  const std::size_t slot = table_->slot_index(name);
  at::Tensor values = empty_rows(slot_info(slot), checked.numel());
  table_->read_slot_rows(slot, span_of(checked), writable_bytes(values));
  return values;
}

std::int64_t HashTable::write_slot_rows(const std::string& name, const at::Tensor& rows, const at::Tensor& values) {
  const at::Tensor checked = checked_ids(rows, "row numbers");
  const std::size_t slot = table_->slot_index(name);
  check_values(values, slot_info(slot), checked.numel());
  const at::Tensor own = plain("values", values);
  return static_cast<std::int64_t>(table_->write_slot_rows(slot, span_of(checked), bytes_of(own)));
}

at::Tensor HashTable::coalesced_ids(std::int64_t child, const at::Tensor& ids) const {
  const at::Tensor checked = checked_ids(ids);
  const std::size_t children = table_->children().size();
  const std::uint64_t number = natural("the child", child);
  if (number >= children) {
    throw invalid("child " + std::to_string(child) + " of a table of " + std::to_string(children));
  }
  std::vector<std::int64_t> encoded(span_of(checked).begin(), span_of(checked).end());
  if (table_->coalesced()) {
    for (std::int64_t& id : encoded) {
      // Cut off, two ids would become one.
      if ((static_cast<std::uint64_t>(id) & ~kChildIdMask) != 0) {
        throw invalid("id " + std::to_string(id) + " does not fit beside a child's number; expected 0 to " +
                      std::to_string(kChildIdMask));
      }
      id = coalesced_id(number, id);
    }
  }
  return tensor_of(encoded);
}

at::Tensor HashTable::ids() const { return tensor_of(table_->ids()); }

void HashTable::reserve(std::int64_t rows) { table_->reserve(natural("the number of rows", rows)); }

std::int64_t HashTable::touch(const at::Tensor& ids, std::int64_t step) {
  const at::Tensor checked = checked_ids(ids);
  return static_cast<std::int64_t>(table_->touch(span_of(checked), step));
}

std::tuple<at::Tensor, at::Tensor> HashTable::changed_since(std::int64_t epoch) const {
  const auto changes = table_->changed_since(natural("the epoch", epoch));
  return {tensor_of(changes.changed), tensor_of(changes.erased)};
}

c10::intrusive_ptr<HashTableSnapshot> HashTable::snapshot() const {
  return c10::make_intrusive<HashTableSnapshot>(table_->snapshot());
}

std::vector<std::string> HashTable::slot_names() const {
  std::vector<std::string> names;
  for (const SlotInfo& slot : table_->slots()) names.push_back(slot.name);
  return names;
}

std::vector<std::int64_t> HashTable::slice() const {
  const BucketRange& buckets = table_->buckets();
  return {static_cast<std::int64_t>(buckets.begin), static_cast<std::int64_t>(buckets.end),
          static_cast<std::int64_t>(buckets.size)};
}

}  // namespace weightstore::torch_bridge
