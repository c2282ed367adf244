#include "file/boxes/chunk_entry.h"

#include <charconv>
#include <optional>
#include <utility>

#include "codec/json_fields.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

constexpr const char* kField = "chunked";

Shape as_shape(const Value& value) {
  const auto* list = value.get_if<Value::List>();
  if (list == nullptr) fail_field(kField);
  Shape shape;
  for (const Value& item : *list) shape.push_back(as_uint(item, kField));
  return shape;
}

// "0,64"; nullopt for any other text.
std::optional<Shape> begin_from_text(std::string_view text) {
  Shape begin;
  for (;;) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return std::nullopt;
    begin.push_back(number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return begin;
    if (text.front() != ',') return std::nullopt;
    text.remove_prefix(1);
  }
}

}  // namespace

std::string chunk_key(std::string_view tensor, const Shape& begin) {
  std::string key(tensor);
  char separator = '/';
  for (const std::uint64_t index : begin) key += std::exchange(separator, ',') + std::to_string(index);
  return key;
}

// Looks for the description of every tensor, and not the other way around: an entry may name far more chunks than there
// are.
std::vector<TensorChunk> find_tensor_chunks(const Value& entry, const TensorTable& table) {
  const Value* chunked = entry.find(kField);
  if (chunked == nullptr) return {};
  const auto* tensors = chunked->get_if<Value::Map>();
  if (tensors == nullptr) fail_field(kField);
  struct Tensor {
    Shape whole;
    std::set<Shape> begins;
  };
  std::map<std::string_view, Tensor> described;
  for (const auto& [key, description] : *tensors) {
    Tensor& tensor = described[*key.get_if<std::string>()];
    tensor.whole = as_shape(field(description, "shape"));
    for (const Value& begin : list_field(description, "chunks")) tensor.begins.insert(as_shape(begin));
  }
  std::vector<TensorChunk> chunks;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::string_view name = table.name(i);
    const std::size_t slash = name.rfind('/');
    if (slash == std::string_view::npos) continue;
    const auto found = described.find(name.substr(0, slash));
    if (found == described.end()) continue;
    auto begin = begin_from_text(name.substr(slash + 1));
    if (!begin || !found->second.begins.contains(*begin)) continue;
    chunks.push_back({i, std::string(found->first), found->second.whole, std::move(*begin)});
  }
  return chunks;
}

void ChunkDescriptions::add(const std::string& name, const Shape& whole, const Shape& begin) {
  Tensor& tensor = tensors_[name];
  tensor.whole = whole;
  tensor.begins.insert(begin);
}

Value ChunkDescriptions::value() const {
  const auto list = [](const Shape& shape) { return Value::List(shape.begin(), shape.end()); };
  Value::Map result;
  for (const auto& [name, tensor] : tensors_) {
    Value::List begins;
    for (const Shape& begin : tensor.begins) begins.emplace_back(list(begin));
    result.emplace_back(name, Value::Map{{"shape", list(tensor.whole)}, {"chunks", std::move(begins)}});
  }
  return result;
}

}  // namespace weightstore
