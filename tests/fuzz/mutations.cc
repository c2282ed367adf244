#include "mutations.h"

#include <algorithm>
#include <bit>
#include <cstring>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace mutations {
namespace {

// How large the next input may become: usually small, because small inputs are many a second, now and then `max_size`.
std::size_t usual_size(Random& random, std::size_t max_size) {
  constexpr std::size_t kUsual = 1024;
  return random.one_in(64) ? max_size : std::min(max_size, kUsual);
}

}  // namespace

std::uint64_t Random::next() {
  std::uint64_t n = state_ += 0x9E3779B97F4A7C15u;
  n = (n ^ n >> 30) * 0xBF58476D1CE4E5B9u;
  n = (n ^ n >> 27) * 0x94D049BB133111EBu;
  return n ^ n >> 31;
}

std::size_t Random::repetitions(std::size_t most) {
  if (most == 0) return 0;
  const std::size_t bits = below(static_cast<std::size_t>(std::bit_width(most)) + 1);
  return std::min(most, std::size_t{1} + below(std::size_t{1} << bits));
}

std::uint64_t Random::number() {
  switch (below(4)) {
    case 0:
      return below(16);
    case 1:
      return (std::uint64_t{1} << below(64)) - 2 + below(4);
    case 2:
      return next() >> below(64);
    default:
      return below(4096);
  }
}

std::string mutate_bytes(std::string bytes, std::size_t max_size) {
  const std::size_t size = bytes.size();
  // Room to grow, but not to the limit at once.
  bytes.resize(std::max(size, std::min(max_size, 2 * size + 64)));
  if (bytes.empty()) return bytes;
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size, bytes.size()));
  return bytes;
}

std::string repeat_part(Random& random, std::string bytes, std::size_t max_size) {
  if (bytes.empty() || bytes.size() >= max_size) return bytes;
  const std::size_t begin = random.below(bytes.size());
  const std::size_t length = 1 + random.below(std::min<std::size_t>(bytes.size() - begin, 64));
  const std::string part = bytes.substr(begin, length);
  const std::size_t count = random.repetitions((max_size - bytes.size()) / length);
  std::string repeated;
  repeated.reserve(count * length);
  for (std::size_t i = 0; i < count; ++i) repeated += part;
  return bytes.insert(begin, repeated);
}

std::string mutate_or_repeat(Random& random, std::string bytes, std::size_t max_size) {
  if (random.one_in(16)) return repeat_part(random, std::move(bytes), max_size);
  return mutate_bytes(std::move(bytes), max_size);
}

void put_little_endian(std::string& out, std::uint64_t n, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(n >> 8 * i));
}

}  // namespace mutations

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  mutations::Random random(seed);
  const std::string file(reinterpret_cast<const char*>(data), size);
  const std::size_t most = std::max(size, mutations::usual_size(random, max_size));
  std::string changed = mutations::mutate_file(random, file, most);
  // A file that was cut is no longer well-formed.
  if (changed.size() > max_size) changed = mutations::mutate_bytes(file, max_size);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
