# The target nanobench::nanobench: an installed package, or the header in NANOBENCH_INCLUDE_DIR.
find_package(nanobench CONFIG QUIET)
if(NOT TARGET nanobench::nanobench)
  find_path(NANOBENCH_HEADER_DIR nanobench.h HINTS ${NANOBENCH_INCLUDE_DIR})
  if(NOT NANOBENCH_HEADER_DIR)
    message(FATAL_ERROR "The C++ benchmarks need nanobench 4.3.11 or later. Install its release "
      "(https://github.com/martinus/nanobench/releases), or run `python third_party/fetch_nanobench.py DIRECTORY` and "
      "configure with -DNANOBENCH_INCLUDE_DIR=DIRECTORY.")
  endif()
  add_library(nanobench INTERFACE)
  target_include_directories(nanobench SYSTEM INTERFACE ${NANOBENCH_HEADER_DIR})
  add_library(nanobench::nanobench ALIAS nanobench)
endif()
