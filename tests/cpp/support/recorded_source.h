#pragma once

// A source that is read and not viewed, and keeps a list of the reads.

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "weightstore/byte_source.h"

class RecordedSource final : public weightstore::ByteSource {
 public:
  struct Read {
    std::uint64_t offset;
    std::uint64_t length;
  };

  explicit RecordedSource(std::string bytes) : bytes_(std::move(bytes)) {}

  std::uint64_t size() const override { return bytes_.size(); }
  std::string name() const override { return "recorded"; }
  void read_at(std::uint64_t offset, weightstore::MutableBytes out) const override {
    CHECK(offset <= bytes_.size() && out.size() <= bytes_.size() - offset);
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    reads.push_back({offset, out.size()});
  }

  mutable std::vector<Read> reads;

 private:
  const std::string bytes_;
};
