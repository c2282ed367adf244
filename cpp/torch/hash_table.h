#pragma once

// torch.classes.store.HashTable and HashTableSnapshot: the hash table for programs in TorchScript and libtorch.

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "weightstore/hash_table.h"

namespace weightstore::torch_bridge {

// A table at one instant. Immutable and thread-safe.
class HashTableSnapshot : public torch::CustomClassHolder {
 public:
  explicit HashTableSnapshot(std::shared_ptr<const TableSnapshot> snapshot) : snapshot_(std::move(snapshot)) {}

  std::int64_t size() const { return static_cast<std::int64_t>(snapshot_->size()); }
  std::int64_t epoch() const { return static_cast<std::int64_t>(snapshot_->epoch()); }
  // Ids of a child (0 unless coalesced) without its bits, and its rows of a slot in the same order. Copies.
  at::Tensor ids(std::int64_t child) const;
  at::Tensor slot(const std::string& name, std::int64_t child) const;

  const std::shared_ptr<const TableSnapshot>& core() const { return snapshot_; }

 private:
  std::shared_ptr<const TableSnapshot> snapshot_;
};

// Thread-safe, as the table is. Ids are I64 tensors of one dimension, values [ids, slot shape...] of the slot's type,
// all on the CPU. Every failure is a RuntimeError that says what was expected.
class HashTable : public torch::CustomClassHolder {
 public:
  // `dtype` is a torch.dtype, which TorchScript takes for a number. With children other than the table itself it is
  // coalesced.
  HashTable(std::string name, std::vector<std::int64_t> shape, std::int64_t dtype, std::int64_t slice_begin,
            std::int64_t slice_end, std::int64_t slice_size, std::int64_t page_rows, std::vector<std::string> children);

  void add_slot(const std::string& name, std::vector<std::int64_t> shape, std::int64_t dtype, double fill);
  // For embeddings created from now on; kinds as initializer_kind() names them.
  void set_initializer(const std::string& kind, double a, double b, std::int64_t seed);

  // Row numbers (-1: unknown) and embeddings.
  std::tuple<at::Tensor, at::Tensor> lookup(const at::Tensor& ids, bool insert);
  // The same into a tensor that is there already, as an in-place operation that autograd knows of but cannot
  // differentiate; returns the row numbers.
  at::Tensor lookup_out(const at::Tensor& ids, bool insert, at::Tensor out);
  void insert(const at::Tensor& ids, const at::Tensor& embeddings);
  std::int64_t erase(const at::Tensor& ids);
  at::Tensor contains(const at::Tensor& ids) const;
  at::Tensor read_slot(const std::string& name, const at::Tensor& ids) const;
  std::int64_t write_slot(const std::string& name, const at::Tensor& ids, const at::Tensor& values);
  // By row numbers that lookup() gave.
  at::Tensor read_slot_rows(const std::string& name, const at::Tensor& rows) const;
  std::int64_t write_slot_rows(const std::string& name, const at::Tensor& rows, const at::Tensor& values);

  // The table's ids for those of a child: with its number in the upper bits, when the table is coalesced.
  at::Tensor coalesced_ids(std::int64_t child, const at::Tensor& ids) const;

  at::Tensor ids() const;
  std::int64_t size() const { return static_cast<std::int64_t>(table_->size()); }
  void clear() { table_->clear(); }
  void reserve(std::int64_t rows);
  std::int64_t touch(const at::Tensor& ids, std::int64_t step);
  std::int64_t evict_older(std::int64_t step) { return static_cast<std::int64_t>(table_->evict_older(step)); }
  std::int64_t evict_rarer(std::int64_t count) { return static_cast<std::int64_t>(table_->evict_rarer(count)); }

  std::int64_t epoch() const { return static_cast<std::int64_t>(table_->epoch()); }
  std::tuple<at::Tensor, at::Tensor> changed_since(std::int64_t epoch) const;
  c10::intrusive_ptr<HashTableSnapshot> snapshot() const;

  std::string name() const { return table_->name(); }
  std::vector<std::string> children() const { return table_->children(); }
  std::vector<std::string> slot_names() const;
  std::vector<std::int64_t> slice() const;

  // Tells tables from tensors in a state dict: hasattr(x, "hashtable_tag").
  std::int64_t hashtable_tag = -1;

  const std::shared_ptr<weightstore::HashTable>& core() const { return table_; }

 private:
  at::Tensor lookup_into(const at::Tensor& checked_ids, bool insert, const at::Tensor& out);
  at::Tensor empty_rows(const SlotInfo& slot, std::int64_t count) const;
  SlotInfo slot_info(std::size_t slot) const { return table_->slots()[slot]; }

  std::shared_ptr<weightstore::HashTable> table_;
};

}  // namespace weightstore::torch_bridge
