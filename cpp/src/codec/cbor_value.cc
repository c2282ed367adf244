// Trees of plain data as CBOR, over the cursor and the writer.

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "codec/cbor.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

// Keys of maps may be maps. Whoever looks for duplicates encodes keys unchecked: each is checked where it is met
// itself, and once is enough (checking anew at every level would take exponential time).
enum class Keys { kCheck, kTrust };

void encode_value(CborWriter& writer, const Value& value, std::size_t depth, Keys keys);

// Keys are the same when their encodings are: 1 and 1.0 differ, all ways to write 1 do not.
bool has_duplicate_key(const Value::Map& map, std::size_t depth) {
  if (map.size() < 2) return false;
  std::vector<std::string> encoded;
  for (const auto& entry : map) {
    CborWriter writer(encoded.emplace_back());
    encode_value(writer, entry.first, depth, Keys::kTrust);
  }
  std::sort(encoded.begin(), encoded.end());
  return std::adjacent_find(encoded.begin(), encoded.end()) != encoded.end();
}

// Nothing is reserved from a declared count: at each of many levels it could be as large as what is left.
Value decode_value(CborCursor& cursor, std::size_t depth) {
  switch (cursor.peek()) {
    case CborKind::kUint:
      return Value(cursor.read_uint());
    case CborKind::kNegative:
      return Value(cursor.read_int());
    case CborKind::kBool:
      return Value(cursor.read_bool());
    case CborKind::kFloat:
      return Value(cursor.read_float());
    case CborKind::kNull:
      cursor.read_null();
      return Value();
    case CborKind::kText: {
      std::string scratch;
      const std::string_view text = cursor.read_text(scratch);
      return Value(std::string(text));
    }
    case CborKind::kBytes: {
      std::string scratch;
      const ConstBytes bytes = cursor.read_bytes(scratch);
      return Value(Value::Bytes(bytes.begin(), bytes.end()));
    }
    case CborKind::kArray: {
      Value::List list;
      cursor.enter_array();
      while (cursor.next()) list.push_back(decode_value(cursor, depth + 1));
      return Value(std::move(list));
    }
    case CborKind::kMap:
      break;
  }
  Value::Map map;
  const std::uint64_t start = cursor.offset();
  cursor.enter_map();
  while (cursor.next()) {
    Value key = decode_value(cursor, depth + 1);
    Value value = decode_value(cursor, depth + 1);
    map.emplace_back(std::move(key), std::move(value));
  }
  if (has_duplicate_key(map, depth + 1)) {
    throw Error(ErrorCode::kCorrupt, "CBOR: a map that has a key twice").at_offset(start);
  }
  return Value(std::move(map));
}

void check_depth(std::size_t depth) {
  if (depth >= CborCursor::kMaxDepth) {
    throw Error(ErrorCode::kInvalidArgument,
                "CBOR: more than " + std::to_string(CborCursor::kMaxDepth) + " levels inside one another");
  }
}

void encode_value(CborWriter& writer, const Value& value, std::size_t depth, Keys keys) {
  value.visit([&](const auto& v) {
    using T = std::decay_t<decltype(v)>;
    if constexpr (std::is_same_v<T, Value::Null>) {
      writer.write_null();
    } else if constexpr (std::is_same_v<T, bool>) {
      writer.write_bool(v);
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      writer.write_int(v);
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      writer.write_uint(v);
    } else if constexpr (std::is_same_v<T, double>) {
      writer.write_float(v);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!is_utf8(v)) throw Error(ErrorCode::kInvalidArgument, "CBOR: text that is not UTF-8");
      writer.write_text(v);
    } else if constexpr (std::is_same_v<T, Value::Bytes>) {
      writer.write_bytes(v);
    } else if constexpr (std::is_same_v<T, Value::List>) {
      check_depth(depth);
      writer.begin_array(v.size());
      for (const Value& element : v) encode_value(writer, element, depth + 1, keys);
    } else {
      check_depth(depth);
      if (keys == Keys::kCheck && has_duplicate_key(v, depth + 1)) {
        throw Error(ErrorCode::kInvalidArgument, "CBOR: a map that has a key twice");
      }
      writer.begin_map(v.size());
      for (const auto& [key, mapped] : v) {
        encode_value(writer, key, depth + 1, keys);
        encode_value(writer, mapped, depth + 1, keys);
      }
    }
  });
}

}  // namespace

Value cbor_decode(ConstBytes bytes) {
  CborCursor cursor(bytes);
  Value value = decode_value(cursor, 0);
  if (!cursor.at_end()) {
    throw Error(ErrorCode::kCorrupt, "CBOR: " + std::to_string(bytes.size() - cursor.offset()) +
                                         " bytes behind the item where there must be none")
        .at_offset(cursor.offset());
  }
  return value;
}

std::string cbor_encode(const Value& value) {
  std::string out;
  CborWriter writer(out);
  encode_value(writer, value, 0, Keys::kCheck);
  return out;
}

}  // namespace weightstore
