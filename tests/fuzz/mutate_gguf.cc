// The mutator of GGUF files: entries and descriptions of tensors are repeated, removed and changed, and the counts at
// the beginning are those of what is there.

#include <algorithm>
#include <string_view>
#include <vector>

#include "mutations.h"

namespace mutations {
namespace {

constexpr std::size_t kHead = 24;

// The header, cut into its pieces.
struct Pieces {
  bool is_big = false;
  std::vector<std::string> entries;
  std::vector<std::string> tensors;
  std::string rest;
};

// Passes over the pieces of a file; stops where they make no sense.
class Cursor {
 public:
  Cursor(std::string_view file, bool is_big) : file_(file), is_big_(is_big) {}

  bool good() const { return good_; }
  std::size_t at() const { return at_; }
  std::uint64_t number(std::size_t width) {
    const std::size_t begin = at_;
    skip(width);
    std::uint64_t n = 0;
    for (std::size_t i = 0; good_ && i < width; ++i) {
      n = n << 8 | static_cast<unsigned char>(file_[is_big_ ? begin + i : begin + width - 1 - i]);
    }
    return n;
  }
  void skip(std::uint64_t bytes) {
    good_ = good_ && bytes <= file_.size() - at_;
    if (good_) at_ += static_cast<std::size_t>(bytes);
  }
  void value(std::uint64_t type, int depth = 0) {
    constexpr std::uint64_t kWidths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    good_ = good_ && type < 13 && depth < 10;
    if (!good_) return;
    if (kWidths[type] != 0) return skip(kWidths[type]);
    if (type == 8) return skip(number(8));
    const std::uint64_t item = number(4);
    for (std::uint64_t n = number(8); good_ && n > 0; --n) value(item, depth + 1);
  }

 private:
  std::string_view file_;
  bool is_big_;
  std::size_t at_ = kHead;
  bool good_ = true;
};

Pieces cut(std::string_view file) {
  Pieces pieces;
  pieces.is_big = file[4] == 0;
  Cursor in(file, pieces.is_big);
  std::size_t done = kHead;
  const auto count_at = [&](std::size_t at) {
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < 8; ++i)
      n = n << 8 | static_cast<unsigned char>(file[pieces.is_big ? at + i : at + 7 - i]);
    return std::min<std::uint64_t>(n, file.size());
  };
  const auto take = [&](std::vector<std::string>& out) {
    if (!in.good()) return;
    out.emplace_back(file.substr(done, in.at() - done));
    done = in.at();
  };
  for (std::uint64_t n = count_at(16); in.good() && n > 0; --n) {
    in.skip(in.number(8));
    in.value(in.number(4));
    take(pieces.entries);
  }
  for (std::uint64_t n = count_at(8); in.good() && n > 0; --n) {
    in.skip(in.number(8));
    in.skip(8 * in.number(4) + 4 + 8);
    take(pieces.tensors);
  }
  pieces.rest = file.substr(done);
  return pieces;
}

void put(std::string& out, std::uint64_t n, bool is_big) {
  std::string number;
  put_little_endian(number, n, 8);
  if (is_big) std::reverse(number.begin(), number.end());
  out += number;
}

// Repeats a piece, with another letter in its name each time.
void repeat(Random& random, std::vector<std::string>& pieces, std::size_t max_size) {
  if (pieces.empty()) return;
  const std::string piece = pieces[random.below(pieces.size())];
  const std::size_t count = random.repetitions(max_size / (piece.size() + 1));
  for (std::size_t i = 0; i < count; ++i) {
    std::string copy = piece;
    if (copy.size() > 8) copy[8] = static_cast<char>(32 + random.below(96));
    if (copy.size() > 9 && random.one_in(2)) copy[9] = static_cast<char>(32 + random.below(96));
    pieces.insert(pieces.begin() + static_cast<std::ptrdiff_t>(random.below(pieces.size() + 1)), std::move(copy));
  }
}

void change(Random& random, std::vector<std::string>& pieces, std::size_t max_size, bool is_big) {
  if (pieces.empty()) return;
  std::string& piece = pieces[random.below(pieces.size())];
  if (piece.size() >= 8 && random.one_in(2)) {  // a length, a count, a dimension, an offset
    std::string number;
    put(number, random.number(), is_big);
    piece.replace(random.one_in(2) ? piece.size() - 8 : random.below(piece.size() - 7), 8, number);
  } else {
    piece = mutate_bytes(piece, max_size);
  }
}

}  // namespace

std::string mutate_file(Random& random, std::string file, std::size_t max_size) {
  if (file.size() < kHead || random.one_in(8)) return mutate_or_repeat(random, std::move(file), max_size);
  Pieces pieces = cut(file);
  std::vector<std::string>& some = random.one_in(2) ? pieces.entries : pieces.tensors;
  switch (random.below(4)) {
    case 0:
      repeat(random, some, max_size - std::min(max_size, file.size()));
      break;
    case 1:
      if (!some.empty()) some.erase(some.begin() + static_cast<std::ptrdiff_t>(random.below(some.size())));
      break;
    default:
      change(random, some, max_size, pieces.is_big);
  }
  if (random.one_in(8)) pieces.rest.resize(std::min(max_size, pieces.rest.size() + random.below(1024)));
  std::string changed = file.substr(0, 8);
  put(changed, pieces.tensors.size(), pieces.is_big);
  put(changed, pieces.entries.size(), pieces.is_big);
  for (const std::string& entry : pieces.entries) changed += entry;
  for (const std::string& tensor : pieces.tensors) changed += tensor;
  // The data begin on a multiple of 32, where most files have them.
  if (!pieces.rest.empty() && !random.one_in(8)) {
    pieces.rest.erase(0, std::min(pieces.rest.size(), pieces.rest.find_first_not_of('\0')));
    changed.resize((changed.size() + 31) / 32 * 32);
    pieces.rest.resize((pieces.rest.size() + 31) / 32 * 32);
  }
  return changed + pieces.rest;
}

}  // namespace mutations
