// The mutator of Burnpack files: the header's length field is that of the metadata, whatever becomes of it.

#include <algorithm>

#include "formats/burnpack/constants.h"
#include "mutations.h"

namespace mutations {
namespace {

using weightstore::burnpack::kHeaderBytes;
constexpr std::size_t kLengthAt = 6;

}  // namespace

std::string mutate_file(Random& random, std::string file, std::size_t max_size) {
  if (file.size() < kHeaderBytes || random.one_in(16)) return mutate_or_repeat(random, file, max_size);
  std::size_t length = 0;
  for (std::size_t i = kHeaderBytes; i-- > kLengthAt;) length = length << 8 | static_cast<unsigned char>(file[i]);
  length = std::min(length, file.size() - kHeaderBytes);
  std::string metadata = file.substr(kHeaderBytes, length);
  // The data keeps its place behind the metadata; the padding between them, if there is any, is made anew.
  const std::size_t data_begin = std::min(file.size(), (kHeaderBytes + length + 255) / 256 * 256);
  const std::string data = file.substr(data_begin);
  metadata = mutate_or_repeat(random, std::move(metadata), max_size - kHeaderBytes);
  std::string changed = file.substr(0, kLengthAt);
  put_little_endian(changed, metadata.size(), 4);
  changed += metadata;
  if (!data.empty()) changed.resize((changed.size() + 255) / 256 * 256);
  changed += data;
  if (random.one_in(16)) changed.resize(changed.size() + random.below(512));
  return changed;
}

}  // namespace mutations
