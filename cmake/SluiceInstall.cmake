# `cmake --install`: command, libraries, GPU plug-ins, header, man page, pkg-config and CMake package files.
include(CMakePackageConfigHelpers)

install(TARGETS sluice sluice_static sluice_stream EXPORT SluiceTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(sluice_plugins)
    install(TARGETS ${sluice_plugins} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/sluice)
endif()
install(TARGETS sluice_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
file(GLOB sluice_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.h)
install(FILES ${sluice_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/docs/sluice.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)

set(sluice_cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Sluice)
install(EXPORT SluiceTargets NAMESPACE Sluice:: DESTINATION ${sluice_cmake_folder})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/SluiceConfig.cmake.in ${PROJECT_BINARY_DIR}/SluiceConfig.cmake
                              INSTALL_DESTINATION ${sluice_cmake_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/SluiceConfig.cmake ${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake
        DESTINATION ${sluice_cmake_folder})

# Relative to the .pc file, so that the installed folder can be moved.
file(RELATIVE_PATH sluice_pc_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${CMAKE_CURRENT_LIST_DIR}/sluice.pc.in ${PROJECT_BINARY_DIR}/sluice.pc @ONLY)
configure_file(${CMAKE_CURRENT_LIST_DIR}/sluice_stream.pc.in ${PROJECT_BINARY_DIR}/sluice_stream.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/sluice.pc ${PROJECT_BINARY_DIR}/sluice_stream.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
