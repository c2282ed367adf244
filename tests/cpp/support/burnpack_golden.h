#pragma once

#include <numeric>

#include "burnpack_files.h"
#include "weightstore/writer.h"

namespace burnpack_files {

// A file that Burn is known to write, byte for byte.
struct Golden {
  const char* id;
  Writer contents;
  BurnRelease release;
  const char* metadata;
  std::size_t file_size;
  const char* sha256;
};

inline std::vector<float> count_from(float first, std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

inline std::vector<Golden> golden_files() {
  std::vector<Golden> files;
  const auto next = [&](const char* id, const char* metadata, std::size_t size, const char* sha256) -> Writer& {
    files.push_back({id, {}, BurnRelease::k020, metadata, size, sha256});
    return files.back().contents;
  };
  next("nothing", "a16774656e736f7273a0", 256, "d51cafc1a9901c1d26d289a9e29457bb4bb041f704ee783577e890d516927813");
  {
    Writer& w = next("one tensor",
                     "a16774656e736f7273a16177a3656474797065634633326573686170658202026c646174615f6f666673657473820010",
                     272, "314beaf2c3157567ec82f81b17c197a7beaadc7b1629beecbee96ef77b1ecd0f");
    add(w, "w", DType::kF32, {2, 2}, floats({1, 2, 3, 4}));
  }
  {
    Writer& w =
        next("param id",
             "a16774656e736f7273a166776569676874a4656474797065634633326573686170658202026c646174615f6f6666736574738"
             "2001068706172616d5f696407",
             272, "b9fbbe259a878cd6ead568e05235861664e9bec96f55b116d42f8bdd1de9692d");
    add(w, "weight", DType::kF32, {2, 2}, floats({1, 2, 3, 4}), 7);
  }
  {
    Writer& w =
        next("index sorted, data as added",
             "a16774656e736f7273a365616c706861a36564747970656346333265736861706581036c646174615f6f6666736574738219"
             "010019010c656d616e676fa36564747970656346333265736861706581076c646174615f6f6666736574738219020019021c"
             "657a65627261a36564747970656346333265736861706581056c646174615f6f666673657473820014",
             796, "d18702f3b9f72d384752dfd47e85b9e346ccc241730d7e4659c4125e5371fc41");
    add(w, "zebra", DType::kF32, {5}, floats(count_from(100, 5)));
    add(w, "alpha", DType::kF32, {3}, floats(count_from(0, 3)));
    add(w, "mango", DType::kF32, {7}, floats(count_from(50, 7)));
  }
  {
    Writer& w =
        next("alignment of bytes",
             "a16774656e736f7273a26774656e736f7231a365647479706562553865736861706581046c646174615f6f66667365747382"
             "00046774656e736f7232a365647479706562553865736861706581046c646174615f6f66667365747382190100190104",
             516, "d882c6d35d5c9a3bd9b9228c31f7c06c63f2773b9115009d54834e3ec641dda0");
    add(w, "tensor1", DType::kU8, {4}, octets({1, 2, 3, 4}));
    add(w, "tensor2", DType::kU8, {4}, octets({5, 6, 7, 8}));
  }
  {
    Writer& w =
        next("no elements at the end",
             "a16774656e736f7273a26161a365647479706562553865736861706581036c646174615f6f666673657473820003617aa365"
             "64747970656346333265736861706582000a6c646174615f6f66667365747382190100190100",
             512, "f95626d9fdaf44f502745384729236056b7c13ec807d070ac25ceaf76df8449d");
    add(w, "a", DType::kU8, {3}, octets({1, 2, 3}));
    add(w, "z", DType::kF32, {0, 10}, octets({}));
  }
  {
    Writer& w =
        next("user metadata",
             "a26774656e736f7273a0686d65746164617461a366666f726d6174686275726e7061636b6870726f6475636572646275726e"
             "6776657273696f6e66302e32302e30",
             256, "604efe90c903e0527505d0e057b0321bc9e26cfe442b97d7029cad93c0ccf30e");
    w.set_metadata("version", "0.20.0");
    w.set_metadata("format", "burnpack");
    w.set_metadata("producer", "burn");
  }
  {
    Writer& w =
        next("scalars",
             "a26774656e736f7273a16177a36564747970656346333265736861706581016c646174615f6f666673657473820004677363"
             "616c617273a364666c6167a164426f6f6cf5666f6666736574a163496e74226473746570a16455496e74182a",
             260, "64c91b7c05b243f645f2ec2ea1838546da66b07316532099ef7fd72a5098a910");
    add(w, "w", DType::kF32, {1}, floats({1}));
    w.set_scalar("step", std::uint64_t{42});
    w.set_scalar("flag", true);
    w.set_scalar("offset", std::int64_t{-3});
  }
  {
    Writer& w = next("booleans of 0.20",
                     "a16774656e736f7273a1616da365647479706564426f6f6c65736861706581036c646174615f6f666673657473820003",
                     259, "3af97779e60ea8025ca2165a949e8d705ab2ae8807df984d21d9b575400cf570");
    add(w, "m", DType::kBool, {3}, octets({1, 0, 1}));
  }
  {
    Writer& w =
        next("booleans since 0.21",
             "a16774656e736f7273a1616da3656474797065a164426f6f6c664e617469766565736861706581036c646174615f6f666673"
             "657473820003",
             259, "88615f4394efea905a7f1c122e2843716da75f256db0aa68ceb8e2bf3ad8a65f");
    add(w, "m", DType::kBool, {3}, octets({1, 0, 1}));
    files.back().release = BurnRelease::k021;
  }
  {
    Writer& w =
        next("rank 0", "a16774656e736f7273a16173a365647479706563463332657368617065806c646174615f6f666673657473820004",
             260, "3fb39c0610e411fce5e81f981d374caa3ef59097f7515d3f6ea24e3006dc0d44");
    add(w, "s", DType::kF32, {}, floats({42}));
  }
  return files;
}

}  // namespace burnpack_files
