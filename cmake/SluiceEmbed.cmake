# Puts the sources that are compiled when Sluice runs into libsluice_cuda.so, as bytes. As a script it writes the C file:
#     cmake -DROOT=src "-DNAMES=cell/lstm.h;..." -DOUTPUT=FILE -P SluiceEmbed.cmake
if(CMAKE_SCRIPT_MODE_FILE)
    set(arrays "")
    set(table "")
    set(sums "")
    set(count 0)
    foreach(name IN LISTS NAMES)
        file(READ ${ROOT}/${name} bytes HEX)
        string(REGEX REPLACE "(................................)" "\\1\n    " bytes "${bytes}")
        string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
        string(APPEND arrays "static const unsigned char text_${count}[] = { /* ${name} */\n    ${bytes}0};\n")
        string(APPEND table "    {\"${name}\", (const char *)text_${count}},\n")
        file(SHA256 ${ROOT}/${name} sum)
        string(APPEND sums "${name} ${sum}\n")
        math(EXPR count "${count} + 1")
    endforeach()
    string(SHA256 sum "${sums}")
    file(WRITE ${OUTPUT}
         "/* Made by cmake/SluiceEmbed.cmake. */\n#include \"backend/cuda/runtime/embedded.h\"\n\n${arrays}"
         "const sli_embedded sli_embedded_sources[] = {\n${table}    {0, 0},\n};\n"
         "const char sli_embedded_sum[] = \"${sum}\";\n")
    return()
endif()

# What instances of kernels are made of, by the names that they are included by. Only what NVRTC can compile: no CUDA header,
# and of the C library <stdint.h>, <stddef.h>, <stdbool.h>, <string.h> (runtime/compile.cu has stand-ins).
file(GLOB sluice_embedded RELATIVE ${PROJECT_SOURCE_DIR}/src CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cell/*.h
     ${PROJECT_SOURCE_DIR}/src/core/rng.h ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels/ptx.cuh
     ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels/persist*.h ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels/persist*.cuh
     ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels/step_args.h ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels/step_memory.cuh
     ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels/step_cells.cuh ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels/step_wide.cuh
     ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels/step_run.cuh ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels/step_run_instance.cuh
     ${PROJECT_SOURCE_DIR}/src/backend/cuda/runtime/narrow.h)
list(FILTER sluice_embedded EXCLUDE REGEX "_host\\.cuh$") # of the launchers, which nvcc compiles
set(sluice_embedded_files ${sluice_embedded})
list(TRANSFORM sluice_embedded_files PREPEND ${PROJECT_SOURCE_DIR}/src/)
set(sluice_embedded_source ${PROJECT_BINARY_DIR}/generated/embedded.c)
add_custom_command(
    OUTPUT ${sluice_embedded_source}
    COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}/src "-DNAMES=${sluice_embedded}"
            -DOUTPUT=${sluice_embedded_source} -P ${CMAKE_CURRENT_LIST_FILE}
    DEPENDS ${sluice_embedded_files} ${CMAKE_CURRENT_LIST_FILE}
    COMMENT "Embedding the sources of kernels that are compiled at run time"
    VERBATIM)
