#pragma once

// The options of Reader, and the limits on what a file may cost its reader.

#include <cstdint>

#include "weightstore/progress.h"

namespace weightstore {

// Limits on what a file may cost its reader. A file that exceeds a limit is refused with Error(kLimit). Where a format
// sets a limit, that is the default. The formats set none for the rank, GGUF files, ZIP archives, .pt files and
// expansion; those defaults are the library's own.
struct Limits {
  std::uint64_t rank = 65'536;  // dimensions of one tensor
  std::uint64_t safetensors_header_bytes = 100'000'000;
  std::uint64_t safetensors_index_bytes = 10u << 20;
  std::uint64_t burnpack_metadata_bytes = 100u << 20;
  std::uint64_t burnpack_tensors = 100'000;
  std::uint64_t burnpack_tensor_bytes = std::uint64_t{10} << 30;
  std::uint64_t burnpack_file_bytes = std::uint64_t{500} << 30;  // of Burn 0.23; up to 0.22 it was 100 GiB
  std::uint64_t gguf_header_bytes = 256u << 20;                  // with the vocabulary of a tokenizer
  std::uint64_t zip_records = 1'000'000;                         // records of a ZIP archive
  std::uint64_t pytorch_pickle_bytes = 256u << 20;
  std::uint32_t pytorch_depth = 128;  // how deeply values may be nested
  // Opening a .pt file and pytorch::read_config() may use 24 bytes of memory per byte of the file, and this much in
  // addition. Small files need the addition when they have one tensor under many names, repeated plain data, or a
  // compressed pickle.
  std::uint64_t pytorch_memory_bytes = 16u << 20;
  // The tensors of a .pt file may repeat bytes of the file, and an archive may compress them. A caller may copy this
  // many bytes of tensors at once, or sixteen times the size of the file, whichever is more
  // (Reader::check_expansion()).
  std::uint64_t expanded_bytes = std::uint64_t{1} << 30;
};

// What the reader does with values that are neither tensors nor plain data: objects of unknown classes and tensors that
// are not dense in a .pt file, object arrays and other records in an .npz file. Nothing in a file is ever run.
enum class Opaque : std::uint8_t {
  kError,  // refuses the file, and names the class or function
  // Leaves them out and lists them in TensorTable::left_out(). Reads the tensors inside a torch.nn.Module. Refuses a
  // file that is one such value, a file in which no tensor is left, and a .pt file that names a function that acts on
  // the machine, such as os.system (docs/security.md).
  kSkip,
};

// When a reader compares the checksums of a file with its bytes.
enum class Verify : std::uint8_t {
  kOff,   // never
  kLazy,  // when a tensor is first read or viewed (in a .pt file, its whole storage); no checksum is no error
  kFull,  // all when the file is opened; a file with a tensor that has no checksum is refused
};

// Whether bulk reads bypass the page cache.
enum class DirectIo : std::uint8_t {
  kAuto,  // for ranges that are not in the page cache, where the file system can
  kNever,
};

struct ReadOptions {
  // true: map the file, so that views need no copy. If another process truncates a mapped file, an access to the
  // missing bytes kills this process with SIGBUS.
  // false: read with pread(2). This is slower, and a truncated file is an Error(kIo).
  bool map = true;
  Verify verify = Verify::kOff;
  Progress verify_progress{};  // called while Verify::kFull compares checksums; can cancel the opening
  DirectIo direct = DirectIo::kAuto;
  unsigned threads = 0;  // for bulk reads; 0: one for each processor, 2 to 8
  Opaque opaque = Opaque::kSkip;
  Limits limits;
};

}  // namespace weightstore
