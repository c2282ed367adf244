#pragma once

// Ids and rows for tests of hash tables.

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "weightstore/hash_table.h"

namespace table_values {

using Ids = std::vector<std::int64_t>;
using Floats = std::vector<float>;

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// A table of F32 rows of `dim` elements.
inline weightstore::TableOptions options(std::uint64_t dim, std::uint32_t page_rows = 8) {
  weightstore::TableOptions options;
  options.name = "user";
  options.shape = {dim};
  options.page_rows = page_rows;
  return options;
}

inline Floats lookup(weightstore::HashTable& table, const Ids& ids, std::size_t dim, bool insert = false) {
  Floats out(ids.size() * dim, -77.0f);
  table.lookup(ids, insert, {}, std::as_writable_bytes(std::span(out)));
  return out;
}

template <class T>
std::vector<T> read_slot(const weightstore::HashTable& table, std::size_t slot, const Ids& ids, std::size_t dim = 1) {
  std::vector<T> out(ids.size() * dim);
  table.read_slot(slot, ids, std::as_writable_bytes(std::span(out)));
  return out;
}

// All a producer has, asked for in blocks of `step` bytes.
template <class T>
std::vector<T> produced(weightstore::ByteProducer& producer, std::size_t step) {
  std::vector<T> out(producer.size() / sizeof(T));
  auto bytes = std::as_writable_bytes(std::span(out));
  for (std::size_t done = 0; done < bytes.size(); done += step) {
    producer.fill(done, bytes.subspan(done, std::min(step, bytes.size() - done)));
  }
  return out;
}

// What a snapshot says about a child: id to row of a slot of `dim` elements.
template <class T>
std::map<std::int64_t, std::vector<T>> rows_of(const weightstore::TableSnapshot& snapshot, std::size_t slot,
                                               std::size_t dim, std::size_t child = 0, std::size_t step = 100) {
  std::map<std::int64_t, std::vector<T>> rows;
  const auto ids = produced<std::int64_t>(*snapshot.ids(child, snapshot.all_stripes()), step);
  const auto values = produced<T>(*snapshot.slot(slot, child, snapshot.all_stripes()), step);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * dim);
    rows[ids[i]] = {begin, begin + static_cast<std::ptrdiff_t>(dim)};
  }
  return rows;
}

}  // namespace table_values
