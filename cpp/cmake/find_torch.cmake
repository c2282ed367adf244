# Finds the torch packages that libraries are built for.
#
# WEIGHTSTORE_TORCH_PACKAGES names them. Where it is empty, the package of the Python environment that is built for is taken: it is
# looked for in CMAKE_PREFIX_PATH, where scikit-build-core puts the target's site-packages also under build isolation, or
# else where the interpreter would import it from.
#
# torch's own CMake package is not used: it stops the build where torch was built for CUDA and no CUDA toolkit is
# installed, and what is needed here is two libraries and their headers. Nothing is cached, because a build directory
# may outlive the torch it first saw.

set(torch_packages "")
foreach(package IN LISTS WEIGHTSTORE_TORCH_PACKAGES)
  if(NOT EXISTS ${package}/include/torch/custom_class.h)
    message(FATAL_ERROR "WEIGHTSTORE_TORCH_PACKAGES: ${package} is no torch package with C++ headers")
  endif()
  list(APPEND torch_packages ${package})
endforeach()

if(NOT torch_packages)
  set(torch_places ${CMAKE_PREFIX_PATH})
  if(Python_EXECUTABLE)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c
        "from importlib.util import find_spec as f; s = f('torch'); print(s.submodule_search_locations[0] + '/..' if s else '')"
      OUTPUT_VARIABLE importable OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND torch_places ${importable})
  endif()
  foreach(place IN LISTS torch_places)
    if(EXISTS ${place}/torch/version.py AND EXISTS ${place}/torch/include/torch/custom_class.h)
      file(REAL_PATH ${place}/torch torch_packages)
      break()
    endif()
  endforeach()
endif()

# Sets torch_version, torch_minor ("2.13") and torch_old_abi for a package.
function(weightstore_describe_torch package)
  file(STRINGS ${package}/version.py line REGEX "^__version__ = ")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+[^']*" version "${line}")
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${version}")
  # torch 2.6 on PyPI was built with the ABI that std::string had before GCC 5, and says so here.
  set(config ${package}/share/cmake/Torch/TorchConfig.cmake)
  set(old_abi "")
  if(EXISTS ${config})
    file(STRINGS ${config} old_abi REGEX "D_GLIBCXX_USE_CXX11_ABI=0")
  endif()
  set(torch_version ${version} PARENT_SCOPE)
  set(torch_minor ${minor} PARENT_SCOPE)
  set(torch_old_abi ${old_abi} PARENT_SCOPE)
endfunction()
