#pragma once

// What the library knows about one file format. A format's folder defines its FormatSpec in format.cc, and registry.cc
// lists all of them. The rest of the library asks the spec instead of comparing ids.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "formats/checksums.h"
#include "weightstore/burn_release.h"
#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"
#include "weightstore/file_contents.h"
#include "weightstore/format.h"
#include "weightstore/layout.h"
#include "weightstore/read_options.h"
#include "weightstore/tensor.h"

namespace weightstore {

// How many bytes of a file detect_format() reads first. The signature of a tar archive is 512 bytes long, the longest
// of all formats.
inline constexpr std::size_t kHeadBytes = 512;

// The beginning of a file that is to be recognised.
struct FileHead {
  std::string_view bytes;    // the first kHeadBytes, or all of a shorter file; never empty
  const ByteSource& source;  // the whole file
};

// How many bytes of tensors a caller may copy out of a file at once. A file that repeats or compresses bytes can
// describe tensors that are far larger than the file.
struct ExpansionLimit {
  std::uint64_t bytes = std::numeric_limits<std::uint64_t>::max();
  std::string_view field;  // the field of Limits that raises the limit; empty when there is no limit

  // For formats in which tensors may share or compress bytes: 16 times the file, or Limits::expanded_bytes if that is
  // more.
  static ExpansionLimit usual(std::uint64_t file_bytes, const Limits& limits);
};

// A file that has some of the tensors of a model, when the others are in files beside it.
struct FilePart {
  std::uint32_t number;  // from 0 on
  std::uint32_t count;
  std::optional<std::uint64_t> tensors;  // of all files together, if the file says so
};

// A file whose header has been read and checked.
struct OpenedFile {
  TensorTable table;  // source 0 is the file
  ExpansionLimit expansion{};
  // Reads the checksums that the format itself defines, such as those of a ZIP archive. Throws as FormatSpec::open
  // does. Null for formats that define none: those keep their checksums in the metadata (weightstore/checksum.h).
  std::function<std::shared_ptr<const Checksums>()> own_checksums{};
  // Set for a file that is part of a split model. Only the part's own tensors are in the table.
  std::optional<FilePart> part{};
};

struct PlanOptions {
  TensorOrder order = TensorOrder::kCanonical;
  BurnRelease burn = kNewestStableBurn;
};

struct FormatSpec {
  Format id;
  std::string_view name;       // to_string(id): "safetensors"
  std::string_view title;      // the name that people write: "SafeTensors"
  std::string_view described;  // inside a sentence: "a SafeTensors file"
  // Endings of file names, in lower case, with the dot. Messages recommend the first one. No two formats share an
  // ending.
  std::span<const std::string_view> endings;

  // True when a file with this format's ending must have this format (check_name()).
  bool owns_endings = false;
  // True for an index: a file that holds no tensors, but names the files that do. An index can only be opened by its
  // path.
  bool is_index = false;
  bool has_scalars = false;    // files hold named scalars
  bool has_param_ids = false;  // files hold an id for each tensor
  // True when other libraries expect an entry `format` in the metadata that names a framework (base/metadata_keys.h).
  bool names_framework = false;
  bool has_typed_metadata = false;  // the values of metadata are not only text (weightstore/typed_metadata.h)
  // True when a file with empty metadata differs from one without metadata.
  bool tells_empty_metadata = false;

  // True when the file has this format. detect_format() asks the formats in the order of the registry.
  bool (*recognises)(const FileHead& head);
  // Reads and checks the header. Throws Error: kCorrupt, kLimit, kUnsupported, kIo.
  OpenedFile (*open)(std::shared_ptr<const ByteSource> source, const ReadOptions& options);
  // Plans a file with these contents. Null for a format that is only read, and for an index. Throws
  // Error(kInvalidArgument or kUnsupported) for contents that the format cannot hold, and Error(kLimit) for contents
  // that are too large.
  Layout (*plan)(const FileContents& contents, const PlanOptions& options);
  // The type under which the format stores the bytes of a tensor of this type: usually the same type. nullopt when the
  // format has no type for them.
  std::optional<DType> (*stored_as)(DType dtype);

  bool holds(DType dtype) const { return stored_as(dtype) == dtype; }
  bool is_writable() const { return plan != nullptr || is_index; }
};

}  // namespace weightstore
