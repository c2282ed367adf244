#include "formats/numpy/array_header.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/corrupt.h"
#include "base/little_endian.h"
#include "formats/numpy/element_type.h"
#include "formats/numpy/header_dict.h"
#include "weightstore/error.h"

namespace weightstore::numpy {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
// Of a header in the usual size: most arrays need one read.
constexpr std::uint64_t kUsualHeader = 128;

// Where the header's text is, as the bytes before it say.
struct TextPlace {
  std::uint64_t begin;
  std::uint64_t end;
};

TextPlace find_text(std::string_view first, std::uint64_t size) {
  if (first.size() < 10 || !first.starts_with(kMagic)) throw corrupt("does not begin as an .npy array does");
  const auto major = static_cast<unsigned char>(first[6]);
  const auto minor = static_cast<unsigned char>(first[7]);
  if (major < 1 || major > 3 || minor != 0) {
    throw Error(ErrorCode::kUnsupported, "version " + std::to_string(major) + "." + std::to_string(minor) +
                                             " of the .npy format; versions 1.0, 2.0 and 3.0 are read");
  }
  const std::uint64_t begin = major == 1 ? 10 : 12;
  if (first.size() < begin) throw corrupt("ends inside its header");
  const auto* length_at = reinterpret_cast<const std::byte*>(first.data()) + 8;
  const std::uint64_t length =
      major == 1 ? load_little_endian<std::uint16_t>(length_at) : load_little_endian<std::uint32_t>(length_at);
  if (length > size - begin) throw corrupt("ends inside its header, which has " + std::to_string(length) + " bytes");
  if (length > kMaxHeaderBytes) {
    throw Error(ErrorCode::kLimit, "a header of " + std::to_string(length) + " bytes; at most " +
                                       std::to_string(kMaxHeaderBytes) + " are read");
  }
  return {begin, begin + length};
}

}  // namespace

ArrayHeader read_array_header(std::uint64_t size, const ReadFirst& read_first, const Limits& limits,
                              MemoryBudget& memory) {
  ChargedString first(static_cast<std::size_t>(std::min(size, kUsualHeader)), '\0', memory);
  read_first(std::as_writable_bytes(std::span(first)));
  const TextPlace place = find_text(first, size);
  if (place.end > first.size()) {
    first.resize(static_cast<std::size_t>(place.end));
    read_first(std::as_writable_bytes(std::span(first)));
  }
  const HeaderDict dict =
      parse_header_dict(std::string_view(first).substr(place.begin, static_cast<std::size_t>(place.end - place.begin)),
                        std::min(limits.rank, kMaxRank));
  const ElementType element = parse_element_type(dict.descr);

  ArrayHeader header;
  header.dtype = element.dtype;
  header.is_swapped = element.is_swapped;
  header.shape = dict.shape;
  header.data_begin = place.end;
  // An array of one dimension lies the same in both orders.
  const auto longer_than_one = [](std::uint64_t dimension) { return dimension > 1; };
  header.is_fortran = dict.is_fortran && std::count_if(dict.shape.begin(), dict.shape.end(), longer_than_one) > 1;
  const auto nbytes = contiguous_bytes(header.dtype, header.shape);
  if (nbytes != size - place.end) {
    throw corrupt("its shape and type need " + (nbytes ? std::to_string(*nbytes) : std::string("more than 2^64")) +
                  " bytes, and " + std::to_string(size - place.end) + " follow its header");
  }
  header.nbytes = *nbytes;
  return header;
}

}  // namespace weightstore::numpy
