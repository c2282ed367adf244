#pragma once

// The checksums that a ZIP archive has for its members.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checksums.h"

namespace weightstore {

// A section is a member, which any number of tensors may share.
class MemberChecksums final : public Checksums {
 public:
  struct Member {
    std::string name;
    std::uint64_t begin;  // where its bytes are in the file, compressed or not
    std::uint64_t end;
    std::uint64_t size;  // after decompression
    std::optional<std::uint32_t> crc;
    bool deflated;
  };
  // A position in the file that lies in the tensor's member; nullopt when the tensor has no member.
  using Position = std::function<std::optional<std::uint64_t>(const TensorTable& table, std::size_t tensor)>;

  // `members` are in the order of the file. Errors call a member `what`, such as "storage".
  MemberChecksums(std::string_view what, std::vector<Member> members, Position position_of);

  bool covers(const TensorTable& table, std::size_t tensor) const override;
  bool needs_check(const TensorTable& table, std::size_t tensor) const override;
  void check(const TensorTable& table, std::size_t tensor, const ConstBytes* bytes) const override;
  bool is_whole_section(const TensorTable& table, std::size_t tensor) const override;
  std::uint32_t extend(ConstBytes bytes, std::uint32_t crc) const override;
  void compare(const TensorTable& table, std::size_t tensor, std::uint32_t crc) const override;
  void require_all(const TensorTable& table) const override;
  std::vector<Section> sections(const TensorTable& table) const override;
  void check_section(const TensorTable& table, std::size_t number) const override;

 private:
  std::optional<std::size_t> member_of(const TensorTable& table, std::size_t tensor) const;
  void compare_member(std::size_t number, std::uint32_t crc) const;

  const std::string what_;
  const std::vector<Member> members_;
  const Position position_of_;
  const std::unique_ptr<std::atomic<bool>[]> checked_;
};

}  // namespace weightstore
