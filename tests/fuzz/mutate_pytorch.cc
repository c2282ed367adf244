// The mutator of .pt files and of other ZIP archives. An archive stays an archive: its records are taken apart, one is
// changed, and they are put together again with the sizes, checksums and directory that belong to them. The pickles in
// archives and streams are changed instruction by instruction.

#include <algorithm>
#include <optional>
#include <vector>

#include "codec/pickle_ops.h"
#include "codec/zip_directory.h"
#include "deflate.h"
#include "pickle_mutations.h"
#include "weightstore/byte_source.h"
#include "weightstore/error.h"
#include "zip_files.h"

namespace mutations {
namespace {

using weightstore::ZipDirectory;
using zip_files::Record;

// Records with their contents as they are, inflated; nullopt when `file` is no archive that the library reads.
std::optional<std::vector<Record>> take_apart(std::string_view file, std::size_t max_size) {
  std::vector<Record> records;
  const auto source = weightstore::memory_source(bytes_of(file));
  try {
    const ZipDirectory directory = ZipDirectory::read(*source, {});
    for (std::size_t i = 0; i < directory.size(); ++i) {
      if (directory[i].size > 256 * max_size) return std::nullopt;
      records.push_back({std::string(directory[i].name), std::string(directory.content(*source, i))});
      if (directory[i].deflated) records.back().inflated_size = directory[i].size;
    }
  } catch (const weightstore::Error&) {
    return std::nullopt;
  }
  return records;
}

std::string put_together(std::vector<Record> records, bool zip64) {
  for (Record& record : records) {
    if (record.inflated_size == record.content.size()) record.content = deflate(record.content);
  }
  return zip_files::archive(records, zip64);
}

void change_record(Random& random, Record& record, std::size_t max_size) {
  const std::size_t room = record.content.size() + max_size;
  if (record.name.ends_with("data.pkl")) {
    record.content = mutate_pickle(random, std::move(record.content), room);
  } else if (record.name.find("/data/") != std::string::npos) {
    record.content.resize(random.one_in(2) ? random.below(64) : random.repetitions(max_size), '\7');
  } else {
    record.content = mutate_bytes(std::move(record.content), record.content.size() + 16);
  }
}

void mutate_records(Random& random, std::vector<Record>& records, std::size_t max_size) {
  if (records.empty()) records.push_back({"archive/data.pkl", "\x80\2}."});
  Record& any = records[random.below(records.size())];
  switch (random.below(10)) {
    case 0:
      any.name = mutate_bytes(any.name, any.name.size() + 16);
      break;
    case 1:
      records.erase(records.begin() + static_cast<std::ptrdiff_t>(random.below(records.size())));
      break;
    case 2: {  // many small records
      const std::string root = any.name.substr(0, any.name.find('/'));
      const std::size_t count = random.repetitions(max_size / 128);
      for (std::size_t i = 0; i < count; ++i) records.push_back({root + "/data/" + std::to_string(i), "1234"});
      break;
    }
    case 3:
      any.described = !any.described;
      break;
    case 4:
      if (any.inflated_size) {
        any.inflated_size.reset();
      } else {
        any.inflated_size = 0;
      }
      break;
    case 5:
      change_record(random, any, max_size);
      break;
    default:
      for (Record& record : records) {
        if (record.name.ends_with("data.pkl")) change_record(random, record, max_size);
      }
  }
  for (Record& record : records) {
    if (record.inflated_size) record.inflated_size = record.content.size();
  }
}

// A legacy stream is pickles one behind the other, and the bytes of storages.
std::string mutate_stream(Random& random, const std::string& stream, std::size_t max_size) {
  std::vector<std::size_t> starts;
  std::size_t at = 0;
  while (at < stream.size() && stream[at] == '\x80' && starts.size() < 8) {
    std::optional<std::size_t> length;
    try {
      length = weightstore::pickle_length(bytes_of(std::string_view(stream).substr(at)));
    } catch (const weightstore::Error&) {
      // An instruction that is not read.
    }
    if (!length) break;
    starts.push_back(at);
    at += *length;
  }
  if (starts.empty()) return mutate_or_repeat(random, stream, max_size);
  const std::size_t which = random.one_in(2) && starts.size() > 3 ? 3 : random.below(starts.size());
  const std::size_t end = which + 1 < starts.size() ? starts[which + 1] : at;
  const std::string pickle = stream.substr(starts[which], end - starts[which]);
  const std::size_t rest = stream.size() - pickle.size();
  return stream.substr(0, starts[which]) + mutate_pickle(random, pickle, max_size - std::min(max_size, rest)) +
         stream.substr(end);
}

}  // namespace

std::string mutate_file(Random& random, std::string file, std::size_t max_size) {
  if (random.one_in(16)) return mutate_or_repeat(random, std::move(file), max_size);
  if (file.starts_with('p') || file.starts_with('b')) {  // a pickle that the target puts into an archive
    if (random.one_in(64)) file[0] = file[0] == 'p' ? 'b' : 'p';
    return file[0] + mutate_pickle(random, file.substr(1), max_size - 1);
  }
  if (auto records = take_apart(file, max_size)) {
    mutate_records(random, *records, max_size);
    return put_together(std::move(*records), random.one_in(2));
  }
  return mutate_stream(random, file, max_size);
}

}  // namespace mutations
