// One way to read: the end record is the last thing in the file, the directory lies right before it, and every local
// header must repeat what the directory says. torch writes local headers without sizes (a data descriptor follows the
// data), so sizes come from the directory alone.

#include "codec/zip_directory.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/checked.h"
#include "base/corrupt.h"
#include "base/little_endian.h"
#include "base/name_hash.h"
#include "base/utf8.h"
#include "codec/crc32.h"
#include "codec/inflate.h"
#include "codec/zip_structures.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

using namespace zip;

constexpr std::uint16_t kWide16 = 0xFFFF;
constexpr std::uint32_t kWide32 = 0xFFFFFFFF;
constexpr std::uint16_t kDescriptorFlag = 1 << 3;
constexpr std::uint16_t kAllowedFlags = kDescriptorFlag | 1 << 11;
constexpr std::uint16_t kDeflateFlags = 1 << 1 | 1 << 2;  // how hard the compressor tried
constexpr std::uint64_t kDeflateOverhead = 1024;          // more than any compressor adds to what it cannot compress
constexpr std::uint32_t kFreeCell = 0xFFFFFFFF;

// Fields of one fixed-size structure.
struct Fields {
  const std::byte* bytes;
  std::uint16_t u16(std::size_t at) const { return load_little_endian<std::uint16_t>(bytes + at); }
  std::uint32_t u32(std::size_t at) const { return load_little_endian<std::uint32_t>(bytes + at); }
  std::uint64_t u64(std::size_t at) const { return load_little_endian<std::uint64_t>(bytes + at); }
};

// Where the directory is, and how many entries it has.
struct End {
  std::uint64_t entries;
  std::uint64_t directory_size;
  std::uint64_t directory_begin;
  std::uint64_t begin;  // of the end records: where the directory ends
};

// A classic field repeats the wide one, or says that it is too small for it.
void check_same(std::uint64_t narrow, std::uint64_t wide, std::uint64_t saturated) {
  if (narrow != wide && narrow != saturated) throw corrupt("the two end records contradict each other");
}

End read_end64(const ByteSource& source, std::uint64_t locator_at, const End& classic) {
  std::array<std::byte, kEnd64Bytes + kLocatorBytes> buffer;
  if (locator_at < kEnd64Bytes) throw corrupt("the ZIP64 end record lies outside of the file");
  const std::uint64_t begin = locator_at - kEnd64Bytes;
  source.read_at(begin, buffer);
  const Fields end{buffer.data()};
  const Fields locator{buffer.data() + kEnd64Bytes};
  if (locator.u32(4) != 0 || locator.u32(16) != 1 || end.u32(16) != 0 || end.u32(20) != 0) {
    throw Error(ErrorCode::kUnsupported, "the ZIP archive spans several disks").at_offset(begin);
  }
  if (locator.u64(8) != begin || end.u32(0) != kEnd64Signature || end.u64(4) != kEnd64Bytes - 12) {
    throw corrupt("the ZIP64 end record is not where it belongs").at_offset(begin);
  }
  const End wide{end.u64(32), end.u64(40), end.u64(48), begin};
  if (end.u64(24) != wide.entries) throw corrupt("the archive's counts of records differ").at_offset(begin + 24);
  check_same(classic.entries, wide.entries, kWide16);
  check_same(classic.directory_size, wide.directory_size, kWide32);
  check_same(classic.directory_begin, wide.directory_begin, kWide32);
  return wide;
}

End read_end(const ByteSource& source) {
  const std::uint64_t size = source.size();
  if (size < kEndBytes) throw corrupt("a ZIP archive of " + std::to_string(size) + " bytes was cut short");
  std::array<std::byte, kEndBytes + kLocatorBytes> buffer{};
  const std::uint64_t before = std::min(size - kEndBytes, kLocatorBytes);
  source.read_at(size - kEndBytes - before, MutableBytes(buffer).last(static_cast<std::size_t>(kEndBytes + before)));
  const Fields end{buffer.data() + kLocatorBytes};
  const std::uint64_t begin = size - kEndBytes;
  if (end.u32(0) != kEndSignature || end.u16(20) != 0) {
    throw corrupt(
        "the ZIP archive does not end with its end record: it was cut short, or has a comment or other bytes "
        "behind it");
  }
  if (end.u16(4) != 0 || end.u16(6) != 0) {
    throw Error(ErrorCode::kUnsupported, "the ZIP archive spans several disks").at_offset(begin);
  }
  if (end.u16(8) != end.u16(10)) throw corrupt("the archive's counts of records differ").at_offset(begin + 8);
  End result{end.u16(10), end.u32(12), end.u32(16), begin};
  const Fields locator{buffer.data()};
  if (before == kLocatorBytes && locator.u32(0) == kLocatorSignature) {
    result = read_end64(source, begin - kLocatorBytes, result);
  }
  const auto directory_end = checked_add(result.directory_begin, result.directory_size);
  if (directory_end != result.begin) {
    throw corrupt("the directory of the ZIP archive does not lie right before its end record").at_offset(result.begin);
  }
  return result;
}

// A record of nothing whose name ends in a slash, which some programs write for every folder.
bool is_folder(const ZipRecord& record) { return record.name.ends_with('/') && record.size == 0; }

void check_name(std::string_view name, std::uint64_t offset) {
  const auto refuse = [&](const char* why) {
    throw corrupt("the record name '" + printable(name) + "' " + why).at_offset(offset);
  };
  if (!is_utf8(name)) refuse("is not UTF-8");
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F || c == '\\') refuse("has characters that no record needs");
  }
  const std::size_t end = name.size() - (name.ends_with('/') ? 1 : 0);
  for (std::size_t begin = 0; begin <= end;) {
    const std::size_t slash = std::min(name.find('/', begin), end);
    const std::string_view part = name.substr(begin, slash - begin);
    if (part.empty() || part == "." || part == "..") refuse("is not a path inside the archive");
    begin = slash + 1;
  }
}

// Replaces saturated fields, in the order of the specification, by those of the ZIP64 extra field.
void widen(ConstBytes extra, std::uint64_t& size, std::uint64_t& stored_size, std::uint64_t& local) {
  bool seen = false;
  while (!extra.empty()) {
    if (extra.size() < 4) throw corrupt("an extra field of a record is cut short");
    const Fields field{extra.data()};
    const std::size_t length = field.u16(2);
    if (length > extra.size() - 4) throw corrupt("an extra field of a record is longer than all of them");
    if (field.u16(0) == 1) {
      if (seen) throw corrupt("a record has its ZIP64 field twice");
      seen = true;
      std::size_t at = 4;
      for (std::uint64_t* number : {&size, &stored_size, &local}) {
        if (*number != kWide32) continue;
        if (at + 8 > length + 4) throw corrupt("the ZIP64 field of a record is too short");
        *number = field.u64(at);
        at += 8;
      }
      if (at != length + 4) throw corrupt("the ZIP64 field of a record is too long");
    }
    extra = extra.subspan(length + 4);
  }
}

struct Entry {
  ZipRecord record;
  std::uint64_t local = 0;
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
};

// Reads the entry at `at` of the directory and moves past it.
Entry read_entry(ConstBytes directory, std::size_t& at, std::uint64_t offset) {
  if (directory.size() - at < kEntryBytes) throw corrupt("the directory ends inside an entry").at_offset(offset);
  const Fields fields{directory.data() + at};
  if (fields.u32(0) != kEntrySignature) throw corrupt("expected an entry of the directory").at_offset(offset);
  const std::size_t name_length = fields.u16(28);
  const std::size_t extra_length = fields.u16(30);
  if (fields.u16(32) != 0) throw corrupt("a record has a comment").at_offset(offset);
  if (fields.u16(34) != 0) throw Error(ErrorCode::kUnsupported, "a record on another disk").at_offset(offset);
  if (name_length + extra_length > directory.size() - at - kEntryBytes) {
    throw corrupt("the directory ends inside an entry").at_offset(offset);
  }
  Entry entry;
  ZipRecord& record = entry.record;
  record.name = {reinterpret_cast<const char*>(directory.data()) + at + kEntryBytes, name_length};
  check_name(record.name, offset);
  entry.flags = fields.u16(8);
  entry.method = fields.u16(10);
  record.crc = fields.u32(16);
  record.stored_size = fields.u32(20);
  record.size = fields.u32(24);
  entry.local = fields.u32(42);
  const auto about = [&](Error error) { return error.at_offset(offset); };
  const auto named = [&](const std::string& what) { return "record '" + printable(record.name) + "' " + what; };
  if ((entry.flags & 1) != 0) throw about(Error(ErrorCode::kUnsupported, named("is encrypted")));
  if (entry.method != 0 && entry.method != 8) {
    throw about(Error(ErrorCode::kUnsupported, named("is compressed by method " + std::to_string(entry.method))));
  }
  record.deflated = entry.method == 8;
  if ((entry.flags & ~(kAllowedFlags | (record.deflated ? kDeflateFlags : 0))) != 0) {
    throw about(corrupt(named("has flags " + std::to_string(entry.flags) + ", which no writer sets")));
  }
  widen(directory.subspan(at + kEntryBytes + name_length, extra_length), record.size, record.stored_size, entry.local);
  if (record.name.ends_with('/') && record.size != 0) throw about(corrupt(named("is a folder, and has bytes")));
  if (!record.deflated && record.size != record.stored_size) {
    throw about(corrupt(named("is stored, but has two different sizes")));
  }
  if (record.deflated && record.stored_size / 2 > record.size + kDeflateOverhead) {
    throw about(corrupt(named("is compressed, and far larger for it")));
  }
  at += kEntryBytes + name_length + extra_length;
  return entry;
}

// Reads the headers of records in the order of the file: one by one where large records lie between them, many at a
// time where the records are small.
class HeaderReader {
 public:
  HeaderReader(const ByteSource& source, MemoryBudget& memory) : source_(source), window_(memory) {}

  // Bytes of the file, which the caller knows to be there. Valid until the next call.
  ConstBytes at(std::uint64_t offset, std::size_t size) {
    const std::uint64_t window_end = begin_ + window_.size();
    if (offset < begin_ || offset + size > window_end) {
      const bool near = offset >= begin_ && offset <= window_end + kLeast;
      ahead_ = near ? std::clamp(2 * ahead_, kLeast, kMost) : 0;
      begin_ = offset;
      window_.resize(
          static_cast<std::size_t>(std::min(std::max<std::uint64_t>(size, ahead_), source_.size() - offset)));
      source_.read_at(offset, window_);
    }
    return ConstBytes(window_).subspan(static_cast<std::size_t>(offset - begin_), size);
  }

 private:
  static constexpr std::uint64_t kLeast = 4u << 10;
  static constexpr std::uint64_t kMost = 64u << 10;

  const ByteSource& source_;
  std::uint64_t begin_ = 0;
  std::uint64_t ahead_ = 0;
  ChargedVector<std::byte> window_;
};

// The local header repeats the entry; the data begins behind it.
void read_local(std::uint64_t file_size, Entry& entry, HeaderReader& headers) {
  ZipRecord& record = entry.record;
  const auto disagree = [&](const char* what) {
    return corrupt("record '" + printable(record.name) + "': its own header and the directory disagree about " + what)
        .at_offset(entry.local);
  };
  const std::size_t size = kLocalBytes + record.name.size();
  const auto end = checked_add(entry.local, size);
  if (!end || *end > file_size) throw disagree("where it is");
  const ConstBytes header = headers.at(entry.local, size);
  const Fields fields{header.data()};
  if (fields.u32(0) != kLocalSignature) throw disagree("where it is");
  if (fields.u16(6) != entry.flags) throw disagree("its flags");
  if (fields.u16(8) != entry.method) throw disagree("how it is compressed");
  const std::string_view name(reinterpret_cast<const char*>(header.data()) + kLocalBytes, record.name.size());
  if (fields.u16(26) != record.name.size() || name != record.name) throw disagree("its name");
  // With a descriptor these come behind the data, and are left out here.
  const bool omitted = (entry.flags & kDescriptorFlag) != 0;
  const auto differs = [&](std::uint64_t here, std::uint64_t there) {
    return here != there && !(omitted && here == 0);
  };
  if (differs(fields.u32(14), record.crc)) throw disagree("its checksum");
  const auto size_differs = [&](std::uint32_t here, std::uint64_t there) {
    return here != kWide32 && differs(here, there);
  };
  if (size_differs(fields.u32(18), record.stored_size) || size_differs(fields.u32(22), record.size)) {
    throw disagree("its size");
  }
  record.begin = *end + fields.u16(28);
}

// Records fill the file up to the directory; only data descriptors, of four possible lengths, lie between.
void check_gap(const Entry& entry, std::uint64_t next) {
  const auto end = checked_add(entry.record.begin, entry.record.stored_size);
  if (!end || *end > next) {
    throw corrupt("record '" + printable(entry.record.name) + "' reaches into what follows it").at_offset(entry.local);
  }
  const std::uint64_t gap = next - *end;
  const bool described = (entry.flags & kDescriptorFlag) != 0;
  if (described ? gap != 12 && gap != 16 && gap != 20 && gap != 24 : gap != 0) {
    throw corrupt(std::to_string(gap) + " bytes behind record '" + printable(entry.record.name) + "' belong to none")
        .at_offset(*end);
  }
}

}  // namespace

ZipDirectory ZipDirectory::read(const ByteSource& source, const Limits& limits, std::shared_ptr<MemoryBudget> memory) {
  if (memory == nullptr) memory = std::make_shared<MemoryBudget>(source.size());
  const End end = read_end(source);
  if (end.entries > limits.records || end.directory_size > limits.directory_bytes) {
    throw Error(ErrorCode::kLimit, "a ZIP archive of " + std::to_string(end.entries) + " records with a directory of " +
                                       std::to_string(end.directory_size) + " bytes; the limits are " +
                                       std::to_string(limits.records) + " and " +
                                       std::to_string(limits.directory_bytes));
  }
  if (end.entries > end.directory_size / kEntryBytes) throw corrupt("the directory is too short for its entries");
  ZipDirectory result(memory);
  result.bytes_.resize(static_cast<std::size_t>(end.directory_size));
  source.read_at(end.directory_begin, result.bytes_);

  ChargedVector<Entry> entries(*memory);
  entries.reserve(static_cast<std::size_t>(end.entries));
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < end.entries; ++i) {
    entries.push_back(read_entry(result.bytes_, at, end.directory_begin + at));
  }
  if (at != result.bytes_.size()) throw corrupt("bytes behind the last entry of the directory");
  const auto before = [](const Entry& a, const Entry& b) { return a.local < b.local; };
  if (!std::is_sorted(entries.begin(), entries.end(), before)) std::sort(entries.begin(), entries.end(), before);
  if ((entries.empty() ? end.directory_begin : entries.front().local) != 0) {
    throw corrupt("bytes before the first record of the ZIP archive").at_offset(0);
  }
  HeaderReader headers(source, *memory);
  result.records_.reserve(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    read_local(source.size(), entries[i], headers);
    check_gap(entries[i], i + 1 < entries.size() ? entries[i + 1].local : end.directory_begin);
    if (!is_folder(entries[i].record)) result.records_.push_back(entries[i].record);
  }
  result.build_lookup();
  return result;
}

void ZipDirectory::build_lookup() {
  seed_ = reinterpret_cast<std::uintptr_t>(bytes_.data()) * 0x9E3779B97F4A7C15u ^
          static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  std::size_t capacity = 16;
  while (capacity < 2 * records_.size()) capacity *= 2;
  cells_.assign(capacity, kFreeCell);
  for (std::size_t i = 0; i < records_.size(); ++i) {
    std::size_t cell = hash_name(records_[i].name, seed_) & (capacity - 1);
    for (; cells_[cell] != kFreeCell; cell = (cell + 1) & (capacity - 1)) {
      if (records_[cells_[cell]].name != records_[i].name) continue;
      throw corrupt("the ZIP archive has two records '" + printable(records_[i].name) + "'")
          .at_offset(records_[i].begin);
    }
    cells_[cell] = static_cast<std::uint32_t>(i);
  }
}

std::optional<std::size_t> ZipDirectory::find(std::string_view name) const {
  std::size_t cell = hash_name(name, seed_) & (cells_.size() - 1);
  for (; cells_[cell] != kFreeCell; cell = (cell + 1) & (cells_.size() - 1)) {
    if (records_[cells_[cell]].name == name) return cells_[cell];
  }
  return std::nullopt;
}

ChargedString ZipDirectory::content(const ByteSource& source, std::size_t number) const {
  const ZipRecord& record = records_[number];
  const auto writable = [](ChargedString& text) { return std::as_writable_bytes(std::span(text)); };
  memory_->require(record.size);  // a string has other words for sizes that are out of the question
  ChargedString bytes(static_cast<std::size_t>(record.size), '\0', *memory_);
  if (record.deflated) {
    ChargedString compressed(static_cast<std::size_t>(record.stored_size), '\0', *memory_);
    source.read_at(record.begin, writable(compressed));
    inflate(writable(compressed), writable(bytes));
  } else {
    source.read_at(record.begin, writable(bytes));
  }
  if (!record.has_crc()) return bytes;
  if (const std::uint32_t found = crc32(std::as_bytes(std::span(bytes))); found != record.crc) {
    throw corrupt("record '" + printable(record.name) + "' has the CRC " + std::to_string(found) +
                  ", the archive says " + std::to_string(record.crc) + "; the file was damaged")
        .at_offset(record.begin);
  }
  return bytes;
}

}  // namespace weightstore
