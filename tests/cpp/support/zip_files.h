#pragma once

// ZIP archives for tests, as torch writes them and as it does not.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/crc32.h"
#include "hex.h"

namespace zip_files {

struct Record {
  std::string name;
  std::string content;
  bool described = true;  // sizes and CRC behind the data, none in the local header
  // The content is deflated, and this many bytes when it is inflated. Has no CRC.
  std::optional<std::uint64_t> inflated_size = std::nullopt;

  std::uint32_t crc() const { return inflated_size ? 0 : weightstore::crc32(bytes_of(content)); }
  std::uint64_t size() const { return inflated_size.value_or(content.size()); }
};

inline void put(std::string& out, std::uint64_t n, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(i < 8 ? static_cast<char>(n >> 8 * i) : '\0');
}

inline void put_header(std::string& out, const Record& record, bool central, std::uint64_t local) {
  const std::uint16_t flags = record.described ? 0x0808 : 0x0800;
  const bool here = central || !record.described;
  put(out, central ? 0x02014B50 : 0x04034B50, 4);
  if (central) put(out, 0, 2);
  put(out, 0, 2);
  put(out, flags, 2);
  put(out, record.inflated_size ? 8 : 0, 2);
  put(out, 0, 4);
  put(out, here ? record.crc() : 0, 4);
  put(out, here ? record.content.size() : 0, 4);
  put(out, here ? record.size() : 0, 4);
  put(out, record.name.size(), 2);
  put(out, 0, 2);
  if (central) {
    put(out, 0, 10);
    put(out, local, 4);
  }
  out += record.name;
}

// A record whose content is compressed, in blocks of bytes as they are.
inline Record deflated(std::string name, std::string_view content) {
  std::string blocks;
  for (std::size_t at = 0; at < content.size() || at == 0; at += 0xFFFF) {
    const std::string_view part = content.substr(at, 0xFFFF);
    blocks += at + part.size() == content.size() ? '\1' : '\0';
    put(blocks, part.size(), 2);
    put(blocks, ~part.size() & 0xFFFF, 2);
    blocks += part;
  }
  return {std::move(name), std::move(blocks), false, content.size()};
}

// `zip64`: with the wide end record that torch always writes.
inline std::string archive(const std::vector<Record>& records, bool zip64 = true) {
  std::string out;
  std::vector<std::uint64_t> locals;
  for (const Record& record : records) {
    locals.push_back(out.size());
    put_header(out, record, false, 0);
    out += record.content;
    if (!record.described) continue;
    put(out, 0x08074B50, 4);
    put(out, record.crc(), 4);
    put(out, record.content.size(), 4);
    put(out, record.size(), 4);
  }
  const std::uint64_t begin = out.size();
  for (std::size_t i = 0; i < records.size(); ++i) put_header(out, records[i], true, locals[i]);
  const std::uint64_t size = out.size() - begin;
  const std::uint64_t end = out.size();
  if (zip64) {
    put(out, 0x06064B50, 4);
    put(out, 44, 8);
    put(out, 0x002D031E, 4);
    put(out, 0, 8);
    put(out, records.size(), 8);
    put(out, records.size(), 8);
    put(out, size, 8);
    put(out, begin, 8);
    put(out, 0x07064B50, 4);
    put(out, 0, 4);
    put(out, end, 8);
    put(out, 1, 4);
  }
  put(out, 0x06054B50, 4);
  put(out, 0, 4);
  put(out, records.size(), 2);
  put(out, records.size(), 2);
  put(out, size, 4);
  put(out, begin, 4);
  put(out, 0, 2);
  return out;
}

// The archive of torch.save() around a pickle and one storage.
inline std::string torch_file(std::string pickle, std::string storage = std::string(16, '\0')) {
  return archive({{"archive/data.pkl", std::move(pickle)},
                  {"archive/byteorder", "little"},
                  {"archive/data/0", std::move(storage)},
                  {"archive/version", "3\n"}});
}

}  // namespace zip_files
