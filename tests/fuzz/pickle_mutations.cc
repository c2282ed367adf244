#include "pickle_mutations.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "codec/pickle_ops.h"
#include "hex.h"
#include "weightstore/error.h"

using namespace std::literals;

namespace mutations {
namespace {

using weightstore::PickleInstruction;
using weightstore::PickleOp;
using weightstore::PickleScanner;

// Where the instructions of a pickle begin, and where the last of them ends. What comes behind the last instruction
// that can be told apart counts as one more. Places, not copies: most of the time of a mutator would go into copies.
using Places = std::vector<std::size_t>;

Places split(std::string_view pickle) {
  Places places = {0};
  PickleScanner scanner(bytes_of(pickle));
  try {
    for (weightstore::PickleInstruction ignored; scanner.next(ignored);) places.push_back(scanner.position());
  } catch (const weightstore::Error&) {
    // An instruction that is not read: the rest is left as it is.
  }
  if (places.back() < pickle.size()) places.push_back(pickle.size());
  return places;
}

// Puts `n` in place of a number operand. False for instructions that have none.
bool set_number(std::string& instruction, std::uint64_t n) {
  int bytes = 0;
  switch (static_cast<PickleOp>(instruction[0])) {
    case PickleOp::kBinInt1:
    case PickleOp::kBinGet:
    case PickleOp::kBinPut:
      bytes = 1;
      break;
    case PickleOp::kBinInt2:
      bytes = 2;
      break;
    case PickleOp::kBinInt:
    case PickleOp::kLongBinGet:
    case PickleOp::kLongBinPut:
      bytes = 4;
      break;
    default:
      return false;
  }
  instruction.resize(1);
  put_little_endian(instruction, n, bytes);
  return true;
}

std::string numbered(char op, std::uint64_t n, int bytes) {
  std::string instruction(1, op);
  put_little_endian(instruction, n, bytes);
  return instruction;
}

std::string integer(Random& random) {
  const std::uint64_t n = random.number();
  if (n < 256) return numbered('K', n, 1);
  if (n < 65536) return numbered('M', n, 2);
  if (n < (std::uint64_t{1} << 31)) return numbered('J', n, 4);
  return "\x8A\x08"s + numbered(' ', n, 8).substr(1);
}

std::string short_text(Random& random) {
  static constexpr std::string_view kTexts[] = {"a", "0", "1", "cpu", "storage", "cuda:0", "", "weight", "\xC3\xA9"};
  const std::string_view text = kTexts[random.below(std::size(kTexts))];
  return numbered('U', text.size(), 1) + std::string(text);
}

std::string global(Random& random) {
  static constexpr std::string_view kGlobals[] = {"collections\nOrderedDict",
                                                  "collections\nCounter",
                                                  "builtins\nset",
                                                  "builtins\nbytearray",
                                                  "builtins\ncomplex",
                                                  "_codecs\nencode",
                                                  "torch\nSize",
                                                  "torch\ndevice",
                                                  "torch\nFloatStorage",
                                                  "torch\nLongStorage",
                                                  "torch.storage\nUntypedStorage",
                                                  "torch\nfloat32",
                                                  "torch\nfloat4_e2m1fn_x2",
                                                  "torch._utils\n_rebuild_tensor",
                                                  "torch._utils\n_rebuild_tensor_v2",
                                                  "torch._utils\n_rebuild_tensor_v3",
                                                  "torch._utils\n_rebuild_parameter",
                                                  "torch._tensor\n_rebuild_from_type_v2",
                                                  "torch._utils\n_rebuild_wrapper_subclass",
                                                  "torch._utils\n_rebuild_sparse_tensor",
                                                  "torch\nQInt32Storage",
                                                  "argparse\nNamespace",
                                                  "collections\ndefaultdict",
                                                  "collections\ndeque",
                                                  "builtins\nslice",
                                                  "pathlib\nPosixPath",
                                                  "datetime\ndatetime",
                                                  "datetime\ntimedelta",
                                                  "numpy\ndtype",
                                                  "numpy.core.multiarray\nscalar",
                                                  "numpy.core.multiarray\n_reconstruct",
                                                  "torch.nn.parameter\nParameter",
                                                  "some.module\nThing"};
  return "c" + std::string(kGlobals[random.below(std::size(kGlobals))]) + "\n";
}

std::string storage(Random& random) {
  const char* key = random.one_in(4) ? "1" : "0";
  const std::string numel = random.one_in(2) ? "K\4"s : integer(random);
  return "(U\7storagectorch\n"s + (random.one_in(4) ? "Byte" : "Float") + "Storage\nU\1" + key + "U\3cpu" + numel +
         "tQ";
}

std::string sizes(Random& random, std::size_t rank) {
  std::string tuple = "(";
  for (std::size_t i = 0; i < rank; ++i)
    tuple += random.one_in(2) ? numbered('K', random.below(5), 1) : integer(random);
  return tuple + "t";
}

std::string tensor(Random& random) {
  const std::size_t rank = random.one_in(8) ? random.repetitions(4096) : random.below(4);
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage(random) + integer(random) + sizes(random, rank) +
         sizes(random, random.one_in(8) ? random.below(4) : rank) + "\x89" + "ccollections\nOrderedDict\n)RtR";
}

// An array of numpy, or a number with `scalar`, whose bytes may be shared.
std::string array(Random& random, bool scalar) {
  static constexpr std::string_view kTypes[] = {"f4", "i2", "u1", "c16", "O8", "U1"};
  const std::string_view name = kTypes[random.below(std::size(kTypes))];
  const std::string type = "cnumpy\ndtype\n" + numbered('U', name.size(), 1) + std::string(name) +
                           "\x89\x88\x87R(K\3U\1" + (random.one_in(2) ? ">" : "<") + "NNNNNK\0tb"s;
  const std::size_t length = random.below(17);
  const std::string bytes = random.one_in(4)   ? numbered('h', random.below(16), 1)
                            : random.one_in(2) ? numbered('C', length, 1) + std::string(length, 'b')
                                               : "c_codecs\nencode\n" + short_text(random) + "U\6latin1\x86R";
  if (scalar) return "cnumpy.core.multiarray\nscalar\n" + type + bytes + "\x86R";
  return "cnumpy.core.multiarray\n_reconstruct\nNNN\x87R(K\1" + sizes(random, random.below(4)) + type +
         (random.one_in(2) ? "\x88" : "\x89") + bytes + "tb";
}

std::string many(const std::string& one, std::size_t count) {
  std::string all;
  all.reserve(one.size() * count);
  for (std::size_t i = 0; i < count; ++i) all += one;
  return all;
}

// Pushes one value.
std::string value(Random& random, std::size_t room) {
  switch (random.below(18)) {
    case 0:
      return "N";
    case 1:
      return random.one_in(2) ? "\x88" : ")";
    case 2:
      return integer(random);
    case 3:
      return short_text(random);
    case 4:
      return global(random);
    case 5:
      return storage(random);
    case 6:
      return tensor(random);
    case 7:
      return numbered('h', random.below(16), 1);
    case 8:  // a list or tuple of many references to one value
      return (random.one_in(2) ? "](" : "(N") + many(numbered('h', random.below(8), 1), random.repetitions(room / 2)) +
             (random.one_in(2) ? "e" : "t");
    case 9:  // many small containers
      return "](" + many(random.one_in(2) ? "]" : "}", random.repetitions(room)) + "e";
    case 10:  // nested tuples
      return "N" + many(random.one_in(2) ? "\x85" : "N\x86", random.repetitions(room / 2));
    case 11:  // a dict with many keys
    {
      std::string dict = "}(";
      const std::size_t count = random.repetitions(room / 6);
      for (std::size_t i = 0; i < count; ++i) dict += numbered('M', i, 2) + "N";
      return dict + "u";
    }
    case 12:  // an object with state
      return "ccollections\nOrderedDict\n)R}b";
    case 13:
      return array(random, random.one_in(2));
    case 14:  // plain data with a tensor inside
      return "cargparse\nNamespace\n)\x81}U\1x" + tensor(random) + "sb";
    case 15:  // a tensor of another class
      return "ctorch._tensor\n_rebuild_from_type_v2\n(" + global(random) + global(random) + ")}U\r_local_tensor" +
             tensor(random) + "stR";
    case 16:  // many objects that are left out
      return "](" + many("csome.module\nThing\n)\x81", random.repetitions(room / 20)) + "e";
    default:  // many texts, one a name each
    {
      std::string list = "](";
      const std::size_t count = random.repetitions(room / 8);
      for (std::size_t i = 0; i < count; ++i) list += "U\4" + numbered(' ', 0x30303030 + i, 4).substr(1);
      return list + "e";
    }
  }
}

// Leaves the stack as deep as it is, where there is a value on top.
std::string neutral(Random& random, std::size_t room) {
  switch (random.below(6)) {
    case 0:
      return numbered('q', random.below(256), 1);
    case 1: {  // a run of the memo
      const std::uint64_t start = random.number() & 0xFFFF;
      const std::uint64_t step = random.one_in(2) ? 1 : random.number() & 0xFFFF;
      const std::size_t count = random.repetitions(room / 5);
      std::string puts;
      for (std::size_t i = 0; i < count; ++i) puts += numbered('r', start + i * step, 4);
      return puts;
    }
    case 2:
      return many("\x94", random.repetitions(room));
    case 3:  // appended to what is on top, if that is a list
      return value(random, room) + "a";
    case 4:  // an entry of what is on top, if that is a dict
      return integer(random) + value(random, room) + "s";
    default:  // a pair of what is on top and something new
      return value(random, room) + "\x86";
  }
}

// Repeats instructions; numbers in them may go up with each repetition, as those of the memo do.
std::string repeated(Random& random, std::string_view pickle, const Places& places, std::size_t first,
                     std::size_t room) {
  const std::size_t count = places.size() - 1 - first;
  const std::size_t last = first + 1 + random.below(std::min<std::size_t>(count, 16));
  const std::uint64_t start = random.number();
  const std::uint64_t step = random.one_in(2) ? 0 : random.number();
  const std::size_t repetitions = random.repetitions(room / (places[last] - places[first]));
  std::string result;
  std::string instruction;
  for (std::size_t i = 0; i < repetitions; ++i) {
    for (std::size_t k = first; k < last; ++k) {
      instruction = pickle.substr(places[k], places[k + 1] - places[k]);
      if (step != 0) set_number(instruction, start + i * step);
      result += instruction;
    }
  }
  return result;
}

}  // namespace

std::string mutate_pickle(Random& random, std::string pickle, std::size_t max_size) {
  if (pickle.size() < 3) pickle = "\x80\2N.";
  const std::size_t room = max_size > pickle.size() ? max_size - pickle.size() : 0;
  const Places places = split(pickle);
  const std::size_t which = random.below(places.size() - 1);
  const std::size_t begin = places[which];
  const std::size_t length = places[which + 1] - begin;
  std::string instruction = pickle.substr(begin, length);
  switch (random.below(8)) {
    case 0:
      if (!set_number(instruction, random.number())) instruction = mutate_bytes(instruction, length + room);
      pickle.replace(begin, length, instruction);
      break;
    case 1:
      pickle.replace(begin, length, mutate_bytes(instruction, length + room));
      break;
    case 2:
      pickle.erase(begin, length);
      break;
    case 3: {  // moves it elsewhere
      const std::size_t other = places[random.below(which + 1)];
      pickle.erase(begin, length);
      pickle.insert(other, instruction);
      break;
    }
    case 4:
      pickle.replace(begin, length, value(random, room));
      break;
    case 5:
      pickle.insert(begin, repeated(random, pickle, places, which, room));
      break;
    default:
      pickle.insert(random.one_in(2) ? begin : begin + length, neutral(random, room));
  }
  if (random.one_in(16)) return pickle;
  if (!pickle.starts_with("\x80")) pickle.insert(0, "\x80\2");
  // What follows a STOP is hidden from the machine; usually there is one, at the end.
  if (!pickle.ends_with(".")) pickle += ".";
  return pickle;
}

}  // namespace mutations
