// Ranges of sources as one source, compared with the bytes of all ranges put into one vector.

#include "base/joined_source.h"

#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "random_bytes.h"
#include "weightstore/error.h"

using namespace weightstore;

namespace {

struct Joined {
  JoinedSource source;
  std::vector<std::byte> expected;
};

// Ranges of three sources, some of them empty.
Joined make_joined(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::shared_ptr<std::vector<std::byte>>> contents;
  for (unsigned i = 0; i < 3; ++i) {
    contents.push_back(std::make_shared<std::vector<std::byte>>(random_bytes(100 + 50 * i, seed + i)));
  }
  std::vector<SourceRange> ranges;
  std::vector<std::byte> expected;
  for (int i = 0; i < 12; ++i) {
    const auto& bytes = contents[random() % contents.size()];
    const std::uint64_t offset = random() % bytes->size();
    const std::uint64_t length = i % 4 == 0 ? 0 : random() % (bytes->size() - offset + 1);
    ranges.push_back({memory_source(*bytes, bytes), offset, length});
    expected.insert(expected.end(), bytes->begin() + static_cast<std::ptrdiff_t>(offset),
                    bytes->begin() + static_cast<std::ptrdiff_t>(offset + length));
  }
  return {JoinedSource(std::move(ranges), "joined"), std::move(expected)};
}

bool is_equal(ConstBytes a, ConstBytes b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

}  // namespace

TEST(every_range_reads_and_views_as_the_bytes_put_together) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    const auto [source, expected] = make_joined(seed);
    CHECK_EQ(source.size(), expected.size());
    std::size_t viewed = 0;
    for (std::size_t begin = 0; begin <= expected.size(); begin += 7) {
      for (std::size_t length = 0; length <= expected.size() - begin; length += 5) {
        const ConstBytes wanted = ConstBytes(expected).subspan(begin, length);
        std::vector<std::byte> out(length);
        source.read_at(begin, out);
        CHECK(is_equal(out, wanted));
        source.populate(begin, length);
        source.discard(begin, length);
        if (const auto view = source.view(begin, length)) {
          CHECK(is_equal(view->bytes, wanted));
          ++viewed;
        }
      }
    }
    CHECK(viewed > 0);
  }
}

TEST(a_view_does_not_reach_over_two_ranges) {
  const auto bytes = random_bytes(20, 1);
  const auto memory = memory_source(bytes);
  const JoinedSource source({{memory, 0, 10}, {memory, 10, 10}}, "joined");
  CHECK(source.view(0, 10) && source.view(10, 10) && source.view(3, 7));
  CHECK(!source.view(0, 20) && !source.view(9, 2));
}

TEST(reads_beyond_the_end) {
  const auto bytes = random_bytes(20, 1);
  const JoinedSource source({{memory_source(bytes), 0, 10}}, "joined");
  std::vector<std::byte> out(8);
  for (const std::uint64_t offset : {std::uint64_t{3}, std::uint64_t{10}, ~std::uint64_t{0}}) {
    const Error error = CHECK_THROWS(Error, source.read_at(offset, out));
    CHECK(error.code() == ErrorCode::kIo);
    CHECK_EQ(error.path(), std::string("joined"));
  }
  const JoinedSource nothing({}, "nothing");
  CHECK_EQ(nothing.size(), 0u);
  nothing.read_at(0, {});
  CHECK_THROWS(Error, nothing.read_at(0, MutableBytes(out).first(1)));
}

RUN_TESTS()
