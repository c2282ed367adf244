# The C++ SDK: headers, static libraries, CMake package and pkg-config file. A wheel carries the same tree, so that
# everything in it must work from wherever it was unpacked.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weightstore)

install(DIRECTORY include/weightstore TYPE INCLUDE COMPONENT dev)
install(TARGETS weightstore weightstore_formats EXPORT weightstoreTargets ARCHIVE COMPONENT dev)
install(EXPORT weightstoreTargets NAMESPACE weightstore:: DESTINATION ${package_dir} COMPONENT dev)

configure_package_config_file(cmake/weightstoreConfig.cmake.in weightstoreConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(weightstoreConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/weightstoreConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/weightstoreConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT dev)

# The prefix as seen from the directory of the .pc file.
file(RELATIVE_PATH pc_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
configure_file(cmake/weightstore.pc.in weightstore.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/weightstore.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
