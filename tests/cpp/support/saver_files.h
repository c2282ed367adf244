#pragma once

// Tables and tensors to save, and what came of them.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "table_values.h"
#include "test_files.h"
#include "weightstore/hash_table.h"
#include "weightstore/loader.h"
#include "weightstore/saver.h"

namespace saver_files {

using Tables = std::vector<std::shared_ptr<weightstore::HashTable>>;
using Rows = std::map<std::int64_t, std::vector<float>>;

inline weightstore::NewTensor dense(std::string name, weightstore::DType dtype, weightstore::Shape shape,
                                    const std::string& bytes) {
  const auto owner = std::make_shared<std::string>(bytes);
  return {std::move(name),  dtype,
          std::move(shape), weightstore::resident_bytes(std::as_bytes(std::span(*owner)), owner),
          std::nullopt,     nullptr};
}

inline std::shared_ptr<weightstore::HashTable> table(const std::string& name, std::uint64_t dim, std::uint64_t shard,
                                                     std::uint64_t shard_num, std::uint32_t stripes = 64) {
  weightstore::TableOptions options;
  options.name = name;
  options.shape = {dim};
  options.buckets = weightstore::shard_buckets(shard, shard_num);
  options.stripes = stripes;
  options.threads = 1;
  return std::make_shared<weightstore::HashTable>(options);
}

// A row that belongs to its id, whatever shard has it.
inline std::vector<float> row_of(std::int64_t id, std::uint64_t dim) {
  std::vector<float> row(dim);
  for (std::uint64_t i = 0; i < dim; ++i) row[i] = static_cast<float>(id % 1'000'003) + static_cast<float>(i) / 64;
  return row;
}

// Inserts those of `ids` that lie in the buckets of the table.
inline void fill(weightstore::HashTable& table, const std::vector<std::int64_t>& ids, std::uint64_t dim) {
  std::vector<std::int64_t> own;
  std::vector<float> rows;
  for (const std::int64_t id : ids) {
    if (!table.buckets().contains(id)) continue;
    own.push_back(id);
    const std::vector<float> row = row_of(id, dim);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  table.insert(own, table_values::bytes_of(rows));
}

inline Rows rows_of(weightstore::HashTable& table, std::uint64_t dim) {
  return table_values::rows_of<float>(*table.snapshot(), 0, dim);
}

// Saves what `part(shard)` gives, all shards at once, as processes of a job would.
template <class PartOf>
void save_all(const std::filesystem::path& path, std::int64_t shards, std::int64_t parallel,
              const weightstore::SaveOptions& options, const PartOf& part) {
  std::vector<std::string> errors(static_cast<std::size_t>(shards));
  {
    std::vector<std::jthread> threads;
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      threads.emplace_back([&, shard] {
        try {
          weightstore::Saver saver(shard, shards, parallel, path);
          weightstore::SaveOptions impatient = options;
          impatient.timeout = std::chrono::seconds(20);
          saver.configure(impatient);
          auto [tables, tensors] = part(shard);
          saver.save(saver.make_write_blocks(tables, std::move(tensors)));
        } catch (const std::exception& error) {
          errors[static_cast<std::size_t>(shard)] = error.what();
        }
      });
    }
  }
  for (const std::string& error : errors) {
    if (!error.empty()) throw std::runtime_error(error);
  }
}

// A checkpoint of one table of 64 rows, `user`, in blocks as small as they can be.
inline void save_cut_table(const std::filesystem::path& path) {
  const auto user = table("user", 2, 0, 1, 8);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 64; ++i) ids.push_back(i * 1024);
  fill(*user, ids, 2);
  weightstore::SaveOptions options;
  options.max_block_bytes = 1;
  weightstore::Saver saver(0, 1, 2, path);
  saver.configure(options);
  saver.save(saver.make_write_blocks(Tables{user}, {}));
}

inline std::string read(const weightstore::CheckpointReader& reader, const std::string& name) {
  const weightstore::TensorInfo info = reader.info(name);
  std::string bytes(*weightstore::contiguous_bytes(info.dtype, info.shape), '\0');
  reader.read(name, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}

}  // namespace saver_files
