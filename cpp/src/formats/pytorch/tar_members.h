#pragma once

// The members of a tar archive of torch 0.1.

#include <cstdint>

#include "weightstore/byte_source.h"

namespace weightstore::pytorch {

struct TarMember {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

struct TarMembers {
  TarMember pickle;
  TarMember tensors;
  TarMember storages;
};

// Throws kUnsupported when the archive is not one of torch's, kCorrupt when it has a member twice, a member of another
// kind than a plain file, a wrong header checksum, or anything but zeros behind its end.
TarMembers read_tar(const ByteSource& source);

}  // namespace weightstore::pytorch
