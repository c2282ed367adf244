#include "io/descriptor_limit.h"

#include <sys/resource.h>

namespace weightstore::io {

bool raise_descriptor_limit() noexcept {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

void make_room_for(std::size_t files) noexcept {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && files > limit.rlim_cur / 2) raise_descriptor_limit();
}

}  // namespace weightstore::io
