#pragma once

// How files are read: limits on what a file may ask for, and the options of Reader.

#include <cstdint>

#include "weightstore/progress.h"

namespace weightstore {

// What a header may ask of us. The defaults are the formats' own limits, except for the rank and for .pt files, which
// they leave open.
struct Limits {
  std::uint64_t rank = 65'536;  // dimensions of one tensor
  std::uint64_t safetensors_header_bytes = 100'000'000;
  std::uint64_t safetensors_index_bytes = 10u << 20;
  std::uint64_t burnpack_metadata_bytes = 100u << 20;
  std::uint64_t burnpack_tensors = 100'000;
  std::uint64_t burnpack_tensor_bytes = std::uint64_t{10} << 30;
  std::uint64_t burnpack_file_bytes = std::uint64_t{100} << 30;
  std::uint64_t pytorch_pickle_bytes = 256u << 20;
  std::uint64_t pytorch_records = 1'000'000;  // of a ZIP archive
  std::uint32_t pytorch_depth = 128;          // values inside one another
  // Opening a .pt file takes this much memory, and 24 bytes for each byte of the file. Small files need it: one tensor
  // under many names, plain data that repeats itself, compressed pickles. So does read_config().
  std::uint64_t pytorch_memory_bytes = 16u << 20;
  // Tensors of a .pt file may repeat the file's bytes. What is copied at once may be this much, or sixteen times the
  // file.
  std::uint64_t pytorch_expanded_bytes = std::uint64_t{1} << 30;
};

// What to do about the objects of a .pt file that are neither tensors nor plain data.
enum class Opaque : std::uint8_t {
  kError,  // refuse the file, naming the class or function
  kSkip,   // pass over them; of a torch.nn.Module the tensors are read
};

// When the checksums that a file carries are compared with its bytes.
enum class Verify : std::uint8_t {
  kOff,
  kLazy,  // each tensor (of a .pt file: its whole storage) when first read or viewed; without a checksum it passes
  kFull,  // all of them when the file is opened; a file in which a tensor has none is refused
};

// Whether bulk reads go around the page cache.
enum class DirectIo : std::uint8_t {
  kAuto,  // for ranges that are not in the page cache, where the file system can
  kNever,
};

struct ReadOptions {
  // Map the file, so that views cost nothing. Without it every read is a pread(2): slower, but a file that shrinks
  // under us is an Error where touching a mapping of it would kill the process with SIGBUS.
  bool map = true;
  Verify verify = Verify::kOff;
  Progress verify_progress{};  // called while Verify::kFull compares checksums; may cancel the opening
  DirectIo direct = DirectIo::kAuto;
  unsigned threads = 0;  // for bulk reads; 0: as many as the machine gains from
  Opaque opaque = Opaque::kError;
  Limits limits;
};

}  // namespace weightstore
