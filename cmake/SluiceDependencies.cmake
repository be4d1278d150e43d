# What Sluice is linked with (Jansson, threads, libm, dlopen) and what it looks for at run time (OpenBLAS).
set(CMAKE_THREAD_PREFER_PTHREAD ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

find_path(JANSSON_INCLUDE_DIR jansson.h)
find_library(JANSSON_LIBRARY jansson)
if(NOT JANSSON_INCLUDE_DIR OR NOT JANSSON_LIBRARY)
    message(FATAL_ERROR "Jansson (the JSON library) was not found: install libjansson-dev, or set JANSSON_INCLUDE_DIR and "
                        "JANSSON_LIBRARY")
endif()

# OpenBLAS is loaded when the program runs, so nothing is linked; ON only makes its absence an error now.
string(TOUPPER "${SLUICE_BLAS}" blas)
if(blas STREQUAL "AUTO")
    set(sluice_blas_number 0)
elseif(blas STREQUAL "ON")
    set(sluice_blas_number 1)
elseif(blas STREQUAL "OFF")
    set(sluice_blas_number 2)
else()
    message(FATAL_ERROR "SLUICE_BLAS is '${SLUICE_BLAS}': give AUTO, ON or OFF")
endif()
if(NOT blas STREQUAL "OFF")
    find_library(OPENBLAS_LIBRARY NAMES libopenblas.so.0 openblas)
    if(OPENBLAS_LIBRARY)
        message(STATUS "OpenBLAS: ${OPENBLAS_LIBRARY} (loaded at run time)")
    elseif(blas STREQUAL "ON")
        message(FATAL_ERROR "SLUICE_BLAS=ON, but libopenblas.so.0 was not found: install libopenblas0, or take AUTO or OFF")
    else()
        message(STATUS "OpenBLAS: not found; Sluice's own matrix products are used, which are slower for large layers "
                       "(install libopenblas0)")
    endif()
endif()
