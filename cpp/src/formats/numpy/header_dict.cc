#include "formats/numpy/header_dict.h"

#include <charconv>
#include <string>

#include "weightstore/error.h"

namespace weightstore::numpy {
namespace {

class DictParser {
 public:
  DictParser(std::string_view text, std::uint64_t max_rank) : left_(text), max_rank_(max_rank) {}

  HeaderDict parse() {
    expect('{');
    while (!next_is('}')) {
      parse_entry();
      if (!next_is(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (!left_.empty()) fail("text behind the dict");
    if (!has_descr_ || !has_order_ || !has_shape_) fail("'descr', 'fortran_order' or 'shape' is missing");
    return std::move(dict_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::kCorrupt, "its header is no dict such as numpy writes: " + what);
  }

  void skip_space() {
    const std::size_t begin = left_.find_first_not_of(" \t\n");
    left_.remove_prefix(std::min(begin, left_.size()));
  }

  // Takes the character if it is next, behind space.
  bool next_is(char c) {
    skip_space();
    if (!left_.starts_with(c)) return false;
    left_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (next_is(c)) return;
    fail(std::string("expected '") + c + "' before '" + printable(left_.substr(0, 20)) + "'");
  }

  bool next_is_word(std::string_view word) {
    skip_space();
    if (!left_.starts_with(word)) return false;
    left_.remove_prefix(word.size());
    return true;
  }

  std::string_view parse_text() {
    const char quote = next_is('\'') ? '\'' : '"';
    if (quote == '"') expect('"');
    const std::size_t end = left_.find(quote);
    if (end == std::string_view::npos) fail("a text without an end");
    const std::string_view text = left_.substr(0, end);
    if (text.find('\\') != std::string_view::npos) fail("a text with a backslash");
    left_.remove_prefix(end + 1);
    return text;
  }

  void parse_entry() {
    skip_space();
    const std::string_view key = parse_text();
    expect(':');
    if (key == "descr") {
      once(has_descr_, key);
      parse_descr();
    } else if (key == "fortran_order") {
      once(has_order_, key);
      parse_order();
    } else if (key == "shape") {
      once(has_shape_, key);
      parse_shape();
    } else {
      fail("the key '" + printable(key) + "'");
    }
  }

  void once(bool& seen, std::string_view key) const {
    if (seen) fail("the key '" + std::string(key) + "' twice");
    seen = true;
  }

  void parse_descr() {
    skip_space();
    if (left_.starts_with('[') || left_.starts_with('(')) {
      throw Error(ErrorCode::kUnsupported, "a structured array, whose elements have fields; save each field by itself");
    }
    dict_.descr = parse_text();
  }

  void parse_order() {
    dict_.is_fortran = next_is_word("True");
    if (!dict_.is_fortran && !next_is_word("False")) fail("'fortran_order' is neither True nor False");
  }

  void parse_shape() {
    expect('(');
    while (!next_is(')')) {
      if (dict_.shape.size() == max_rank_) {
        throw Error(ErrorCode::kLimit, "an array of more than " + std::to_string(max_rank_) + " dimensions");
      }
      dict_.shape.push_back(parse_dimension());
      if (next_is(',')) continue;
      // In Python (3) is a number; a tuple of one has a comma.
      if (dict_.shape.size() == 1) fail("'shape' is no tuple");
      expect(')');
      break;
    }
  }

  std::uint64_t parse_dimension() {
    skip_space();
    if (left_.starts_with('-')) fail("a negative dimension");
    std::uint64_t dimension = 0;
    const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), dimension);
    if (error != std::errc()) fail("a dimension that is no number of 64 bits");
    left_.remove_prefix(static_cast<std::size_t>(end - left_.data()));
    if (left_.starts_with('L')) left_.remove_prefix(1);  // as Python 2 wrote long integers
    return dimension;
  }

  std::string_view left_;
  const std::uint64_t max_rank_;
  HeaderDict dict_;
  bool has_descr_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

}  // namespace

HeaderDict parse_header_dict(std::string_view text, std::uint64_t max_rank) {
  return DictParser(text, max_rank).parse();
}

}  // namespace weightstore::numpy
