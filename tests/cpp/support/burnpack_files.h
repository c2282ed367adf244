#pragma once

// Burnpack files for tests: made by hand, or from a Writer without the file layer.

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/cbor.h"
#include "hex.h"
#include "weightstore/burnpack.h"
#include "weightstore/writer.h"

namespace burnpack_files {

using namespace weightstore;

// The file a Writer makes, put together from its plan.
inline std::string write(const Writer& contents, BurnRelease release = BurnRelease::k020) {
  const Layout layout = burnpack::plan(contents, release);
  std::string file = layout.header;
  file.resize(static_cast<std::size_t>(layout.file_size), '\0');
  for (const Layout::Placement& placement : layout.placements) {
    auto* begin = reinterpret_cast<std::byte*>(file.data()) + placement.begin;
    const auto length = static_cast<std::size_t>(placement.end - placement.begin);
    if (length != 0) contents.tensors()[placement.tensor].bytes->fill(0, {begin, length});
  }
  return file;
}

inline TensorTable read(std::string_view file, const Limits& limits = {}) {
  return burnpack::read_table(memory_source(bytes_of(file)), limits);
}

// Header and metadata, without pad and data.
inline std::string head(std::string_view metadata, unsigned version = 1) {
  std::string file = "NRUB";
  file.push_back(static_cast<char>(version & 0xFF));
  file.push_back(static_cast<char>(version >> 8));
  for (unsigned shift = 0; shift < 32; shift += 8) file.push_back(static_cast<char>(metadata.size() >> shift & 0xFF));
  return file.append(metadata);
}

// A whole file: the data section aligned as since 0.20.
inline std::string aligned(std::string_view metadata, std::string_view data) {
  std::string file = head(metadata);
  file.resize((file.size() + 255) / 256 * 256, '\0');
  return file.append(data);
}

// One entry of the index: name and descriptor.
inline std::string entry(std::string_view name, std::string_view dtype, std::vector<std::uint64_t> shape,
                         std::uint64_t begin, std::uint64_t end) {
  std::string out;
  CborWriter writer(out);
  writer.write_text(name);
  writer.begin_map(3);
  writer.write_text("dtype");
  writer.write_text(dtype);
  writer.write_text("shape");
  writer.begin_array(shape.size());
  for (const std::uint64_t dimension : shape) writer.write_uint(dimension);
  writer.write_text("data_offsets");
  writer.begin_array(2);
  writer.write_uint(begin);
  writer.write_uint(end);
  return out;
}

inline std::string index_of(const std::vector<std::string>& entries) {
  std::string out;
  CborWriter writer(out);
  writer.begin_map(1);
  writer.write_text("tensors");
  writer.begin_map(entries.size());
  for (const std::string& one : entries) out += one;
  return out;
}

template <class T>
std::shared_ptr<ByteProducer> numbers(const std::vector<T>& values) {
  const auto owner = std::make_shared<std::vector<T>>(values);
  return resident_bytes(std::as_bytes(std::span(*owner)), owner);
}

inline std::shared_ptr<ByteProducer> floats(const std::vector<float>& values) { return numbers(values); }

inline std::shared_ptr<ByteProducer> octets(const std::vector<std::uint8_t>& values) { return numbers(values); }

inline void add(Writer& writer, std::string name, DType dtype, Shape shape, std::shared_ptr<ByteProducer> bytes,
                std::optional<std::uint64_t> param_id = std::nullopt) {
  writer.add({std::move(name), dtype, std::move(shape), std::move(bytes), param_id, nullptr});
}

}  // namespace burnpack_files
