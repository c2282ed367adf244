// The mutator of SafeTensors files: the length field is that of the header, and the data is as long as the header says.

#include <algorithm>
#include <charconv>

#include "mutations.h"

namespace mutations {
namespace {

constexpr std::size_t kLengthBytes = 8;

// The highest number behind a "data_offsets": where the data should end.
std::size_t data_size(std::string_view header, std::size_t most) {
  constexpr std::string_view kField = "\"data_offsets\":[";
  std::size_t size = 0;
  for (std::size_t at = header.find(kField); at != std::string_view::npos; at = header.find(kField, at + 1)) {
    const std::size_t comma = header.find(',', at);
    if (comma == std::string_view::npos) break;
    std::size_t end = 0;
    std::from_chars(header.data() + comma + 1, header.data() + header.size(), end);
    if (end <= most) size = std::max(size, end);
  }
  return size;
}

}  // namespace

std::string mutate_file(Random& random, std::string file, std::size_t max_size) {
  if (file.size() < kLengthBytes || random.one_in(32)) return mutate_or_repeat(random, file, max_size);
  std::size_t end = file.rfind('}');
  if (end == std::string::npos || end < kLengthBytes) end = file.size() - 1;
  std::string header = file.substr(kLengthBytes, end + 1 - kLengthBytes);
  header = mutate_or_repeat(random, std::move(header), max_size - kLengthBytes);
  std::string changed;
  put_little_endian(changed, header.size(), kLengthBytes);
  changed += header;
  const std::size_t room = max_size - std::min(max_size, changed.size());
  return changed + std::string(random.one_in(32) ? random.below(16) : data_size(header, room), '\7');
}

}  // namespace mutations
