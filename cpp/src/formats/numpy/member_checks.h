#pragma once

// The checksums that an .npz archive has for its arrays.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "formats/checksums.h"
#include "weightstore/read_options.h"

namespace weightstore::numpy {

// Where in the file the members begin whose arrays have sources of their own; ascending by source.
using MemberPlaces = std::vector<std::pair<const ByteSource*, std::uint64_t>>;

// A section is a member: the array with its header. Reads the archive's directory. Throws as ZipDirectory::read() does.
std::shared_ptr<const Checksums> read_member_checks(const ByteSource& file, const Limits& limits,
                                                    std::shared_ptr<const MemberPlaces> places);

}  // namespace weightstore::numpy
