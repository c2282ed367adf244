#include "io/text_file.h"

#include "io/checked_io.h"
#include "io/file_source.h"
#include "weightstore/error.h"

namespace weightstore::io {

std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit, FileOps& ops) {
  const auto source = open_file(path, false, ops);
  if (source->size() > limit) {
    throw Error(ErrorCode::kLimit,
                "the file has " + std::to_string(source->size()) + " bytes, the limit is " + std::to_string(limit))
        .in_file(path.native());
  }
  std::string text(static_cast<std::size_t>(source->size()), '\0');
  source->read_at(0, {reinterpret_cast<std::byte*>(text.data()), text.size()});
  return text;
}

void write_text_file(const std::filesystem::path& path, std::string_view text, const AtomicFile::Options& options,
                     FileOps& ops) {
  AtomicFile file(path, options, ops);
  write_fully(ops, file.fd(), {reinterpret_cast<const std::byte*>(text.data()), text.size()}, 0, file.target_path());
  file.commit();
}

}  // namespace weightstore::io
