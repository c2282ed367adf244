# Headers that never change and take long to parse are precompiled, and some sources of the library are compiled together.
# Only headers of the standard library: a compiler cache can hand over what it precompiled in another checkout, and g++
# would then read our headers, which say `#pragma once`, a second time.
# A source still includes each header that it uses: the sanitizer and fuzz builds do neither
# (CMAKE_DISABLE_PRECOMPILE_HEADERS).

if(CMAKE_DISABLE_PRECOMPILE_HEADERS)
  set(weightstore_unity OFF)
else()
  set(weightstore_unity ON)
endif()

set(weightstore_standard_headers
  <algorithm>
  <array>
  <atomic>
  <bit>
  <charconv>
  <chrono>
  <condition_variable>
  <cstdint>
  <cstring>
  <filesystem>
  <functional>
  <limits>
  <map>
  <memory>
  <mutex>
  <optional>
  <set>
  <span>
  <string>
  <string_view>
  <thread>
  <utility>
  <vector>)
