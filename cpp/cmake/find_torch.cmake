# Finds the torch of the Python environment that is built for, as the target weightstore_torch_dependency: in
# CMAKE_PREFIX_PATH, where scikit-build-core puts the target's site-packages also under build isolation, or else where
# the interpreter would import it from.
#
# torch's own CMake package is not used: it stops the build where torch was built for CUDA and no CUDA toolkit is
# installed, and what is needed here is two libraries and their headers. Nothing is cached, because a build directory
# may outlive the torch it first saw.

set(torch_places ${CMAKE_PREFIX_PATH})
if(Python_EXECUTABLE)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
      "from importlib.util import find_spec as f; s = f('torch'); print(s.submodule_search_locations[0] + '/..' if s else '')"
    OUTPUT_VARIABLE importable OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND torch_places ${importable})
endif()

set(WEIGHTSTORE_TORCH_FOUND FALSE)
foreach(place IN LISTS torch_places)
  if(EXISTS ${place}/torch/version.py AND EXISTS ${place}/torch/include/torch/custom_class.h)
    file(REAL_PATH ${place}/torch torch_package)
    set(WEIGHTSTORE_TORCH_FOUND TRUE)
    break()
  endif()
endforeach()
if(NOT WEIGHTSTORE_TORCH_FOUND)
  return()
endif()

file(STRINGS ${torch_package}/version.py version_line REGEX "^__version__ = ")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+[^']*" WEIGHTSTORE_TORCH_VERSION "${version_line}")
find_library(torch_cpu_library torch_cpu PATHS ${torch_package}/lib NO_DEFAULT_PATH NO_CACHE REQUIRED)
find_library(c10_library c10 PATHS ${torch_package}/lib NO_DEFAULT_PATH NO_CACHE REQUIRED)

add_library(weightstore_torch_dependency INTERFACE)
target_include_directories(weightstore_torch_dependency SYSTEM INTERFACE
  ${torch_package}/include ${torch_package}/include/torch/csrc/api/include)
target_link_libraries(weightstore_torch_dependency INTERFACE ${torch_cpu_library} ${c10_library})
