#pragma once

// The structures of a ZIP archive: the signature that each begins with, and its size without names and extra fields.

#include <cstdint>

namespace weightstore::zip {

inline constexpr std::uint32_t kLocalSignature = 0x04034B50;
inline constexpr std::uint32_t kEntrySignature = 0x02014B50;
inline constexpr std::uint32_t kEndSignature = 0x06054B50;
inline constexpr std::uint32_t kEnd64Signature = 0x06064B50;
inline constexpr std::uint32_t kLocatorSignature = 0x07064B50;

inline constexpr std::uint64_t kLocalBytes = 30;
inline constexpr std::uint64_t kEntryBytes = 46;
inline constexpr std::uint64_t kEndBytes = 22;
inline constexpr std::uint64_t kEnd64Bytes = 56;
inline constexpr std::uint64_t kLocatorBytes = 20;

}  // namespace weightstore::zip
