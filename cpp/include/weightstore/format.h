#pragma once

// The file formats this library knows, and how it tells them apart.

#include <cstdint>
#include <string_view>

namespace weightstore {

class ByteSource;

enum class Format : std::uint8_t {
  kUnknown,
  kSafetensors,
  kSafetensorsIndex,  // model.safetensors.index.json: a set of SafeTensors shards
  kBurnpack,
  kPytorch,  // torch.save(): read only
  kNumpy,    // numpy.save() and numpy.savez(): read only
  kGguf,     // models of llama.cpp
};

inline constexpr int kFormatCount = static_cast<int>(Format::kGguf) + 1;  // with kUnknown

// "safetensors", "safetensors index", "burnpack", "pytorch", "numpy", "gguf" or "unknown".
std::string_view to_string(Format format);

// Decides by content and structure, never by the first four bytes alone. Reads a few hundred bytes of `source`, and of
// a ZIP archive the names in its directory: torch.save() writes one with a `data.pkl` in a folder, numpy.savez() one
// with `.npy` records. Every tar archive counts as a file of torch.save(). Throws Error(kUnsupported), naming what the
// content looks like (a Git LFS pointer, an HTML page, a pickle, ...), when it is none of the formats above.
Format detect_format(const ByteSource& source);

// Throws Error(kUnsupported) for a file that is named as SafeTensors and has another format: `path` ends in
// ".safetensors" or ".safetensors.index.json" (any letter case), and the content is not that. A program that reads only
// files with such names must not be led to another reader. Other endings promise nothing: a .pt, .bin or .bpk file may
// hold any format.
void check_name(std::string_view path, Format content);

// The format a file name asks for when writing: ".safetensors", ".bpk" or ".gguf" (any letter case). Throws
// Error(kInvalidArgument) for any other ending, and says so when the ending is that of a format that is only read.
Format format_of_name(std::string_view file_name);

}  // namespace weightstore
