# The GPU plug-ins, libsluice_cuda.so and libsluice_cudnn.so: found by libsluice when it runs (docs/GPU.md), linked by nothing.
# Nothing here changes how libsluice itself is built.
set(SLUICE_CUDA AUTO CACHE STRING "CUDA plug-in, needs nvcc >= 13: AUTO (if nvcc is there), ON (must be there), OFF")
set(SLUICE_CUDNN AUTO CACHE STRING "cuDNN plug-in, needs cudnn.h of cuDNN 9: AUTO (if it is there), ON (must be there), OFF")
set(SLUICE_CUDA_ARCHITECTURES "80;90;100" CACHE STRING "Machine code for these; PTX for newer ones")

foreach(option SLUICE_CUDA SLUICE_CUDNN)
    string(TOUPPER "${${option}}" value)
    if(NOT value MATCHES "^(AUTO|ON|OFF)$")
        message(FATAL_ERROR "${option} is '${${option}}': give AUTO, ON or OFF")
    endif()
    set(${option}_wanted ${value})
endforeach()

# A macro: what is missing ends the search, as an error if the option is ON.
macro(sluice_without option what lost)
    if(${option}_wanted STREQUAL "ON")
        message(FATAL_ERROR "${option}=ON, but ${what}; take AUTO or OFF to build without (${lost})")
    endif()
    message(STATUS "${what}: ${lost}")
    set(${option}_wanted OFF)
endmacro()

# ------------------------------------------------------------------------------------------------------------- nvcc --
if(NOT SLUICE_CUDA_wanted STREQUAL "OFF")
    file(GLOB cuda_folders /usr/local/cuda-1[3-9]*)
    list(SORT cuda_folders COMPARE NATURAL ORDER DESCENDING)
    list(TRANSFORM cuda_folders APPEND /bin)
    find_program(SLUICE_NVCC NAMES $ENV{CUDACXX} nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin
                 PATHS /usr/local/cuda/bin ${cuda_folders} /opt/cuda/bin DOC "NVIDIA's compiler")
    set(nvcc_version "")
    if(SLUICE_NVCC)
        execute_process(COMMAND ${SLUICE_NVCC} --version OUTPUT_VARIABLE nvcc_text ERROR_QUIET)
        string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" nvcc_text "${nvcc_text}")
        set(nvcc_version "${CMAKE_MATCH_1}")
    endif()
    set(lost "libsluice_cuda.so is not built, there will be no NVIDIA GPUs")
    if(NOT SLUICE_NVCC)
        sluice_without(SLUICE_CUDA "nvcc was not found" "${lost}")
    elseif(NOT nvcc_version VERSION_GREATER_EQUAL 13.0)
        sluice_without(SLUICE_CUDA "nvcc (${SLUICE_NVCC}) is version '${nvcc_version}', 13.0 is needed" "${lost}")
    else()
        if(NOT CMAKE_CUDA_COMPILER)
            set(CMAKE_CUDA_COMPILER ${SLUICE_NVCC} CACHE FILEPATH "NVIDIA's compiler")
        endif()
        set(CMAKE_CUDA_ARCHITECTURES OFF) # ours are given flag by flag below
        include(CheckLanguage)
        check_language(CUDA)
        if(NOT CMAKE_CUDA_COMPILER)
            sluice_without(SLUICE_CUDA "nvcc (${SLUICE_NVCC}) does not compile here, see CMakeFiles/CMakeError.log" "${lost}")
        endif()
    endif()
endif()

# ------------------------------------------------------------------------------------------------ libsluice_cuda.so --
set(sluice_plugins "")
# Only what opens the plug-in is seen from outside; whatever is linked statically stays inside.
set(sluice_plugin_link -Wl,--exclude-libs,ALL -Wl,--as-needed -Wl,-z,defs -Wl,--gc-sections)
file(GLOB sluice_cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cuda/runtime/*.cu
     ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels/*.cu)
list(FILTER sluice_cuda_sources EXCLUDE REGEX "_instance\\.cu$") # compiled when Sluice runs: SluiceEmbed.cmake
if(NOT SLUICE_CUDA_wanted STREQUAL "OFF")
    enable_language(CUDA)
    # Sizes of scratch and geometry that both sides must agree on.
    file(GLOB sluice_layout_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cuda/workspace.c
         ${PROJECT_SOURCE_DIR}/src/backend/cuda/persist_geometry.c ${PROJECT_SOURCE_DIR}/src/backend/cuda/persist_describe.c
         ${PROJECT_SOURCE_DIR}/src/backend/cuda/persist_builtin.c ${PROJECT_SOURCE_DIR}/src/backend/cuda/persist_cost.c ${PROJECT_SOURCE_DIR}/src/backend/cuda/persist_registers.c ${PROJECT_SOURCE_DIR}/src/backend/cuda/persist_overlap.c
         ${PROJECT_SOURCE_DIR}/src/backend/cuda/step_cost.c ${PROJECT_SOURCE_DIR}/src/backend/cuda/*_layout.c)
    # The sources know what comes before sm_90 and what from there on, and nothing in between: each half is compiled once, to
    # PTX of its least architecture (most of nvcc's time), and from there to machine code of all of them.
    if(NOT SLUICE_CUDA_ARCHITECTURES MATCHES "^([5-9][0-9]|[1-9][0-9][0-9])(;([5-9][0-9]|[1-9][0-9][0-9]))*$")
        message(FATAL_ERROR "SLUICE_CUDA_ARCHITECTURES is '${SLUICE_CUDA_ARCHITECTURES}'; numbers are needed, such as 80;90;100")
    endif()
    set(machine_code "")
    set(architecture_names "")
    foreach(half IN ITEMS "^[5-8][0-9]$" "^(9|[1-9][0-9])[0-9]$")
        set(architectures ${SLUICE_CUDA_ARCHITECTURES})
        list(FILTER architectures INCLUDE REGEX "${half}")
        list(SORT architectures COMPARE NATURAL)
        if(architectures)
            list(GET architectures 0 least)
            list(TRANSFORM architectures PREPEND sm_ OUTPUT_VARIABLE codes)
            list(JOIN codes " " names)
            list(JOIN codes "," codes)
            list(APPEND machine_code "--generate-code=arch=compute_${least},code=[${codes}]")
            string(APPEND architecture_names " ${names}")
        endif()
    endforeach()
    list(POP_BACK machine_code newest)
    string(REPLACE "]" ",compute_${least}]" newest "${newest}")
    list(APPEND machine_code ${newest})
    string(APPEND architecture_names " and PTX of compute_${least}")
    message(STATUS "CUDA: nvcc ${nvcc_version} (${SLUICE_NVCC}):${architecture_names}")

    # Sources without kernels are for the host's compiler alone: nvcc would read each of them once per architecture.
    set(sluice_cuda_host_sources runtime/code_cache runtime/compile runtime/device runtime/lanes runtime/plugin
        runtime/products runtime/profile runtime/queue runtime/recording kernels/persist_builtin
        kernels/persist_fold_host kernels/persist_host kernels/persist_launch kernels/stack kernels/step_backward
        kernels/step_forward kernels/step_run)
    list(TRANSFORM sluice_cuda_host_sources REPLACE ".+" "${PROJECT_SOURCE_DIR}/src/backend/cuda/\\0.cu")
    enable_language(CXX)
    set_source_files_properties(${sluice_cuda_host_sources} PROPERTIES LANGUAGE CXX)

    # Of nvcc's time for a small source most goes into CUDA's own headers, three times: sources of a kind are compiled as one.
    set(together_products runtime/few_columns runtime/few_rows runtime/small runtime/split runtime/tiles)
    set(together_moves kernels/convert kernels/copy kernels/send kernels/transpose)
    set(together_layers kernels/dense kernels/elements kernels/embed kernels/losses kernels/softmax)
    set(together_steps kernels/persist_fold kernels/step_common kernels/step_gru kernels/step_lstm kernels/step_recompute
        kernels/step_rnn kernels/step_way kernels/wave)
    set(together_parameters kernels/persist_measure kernels/persist_pack kernels/persist_ready kernels/updates)
    foreach(group IN ITEMS products moves layers steps parameters)
        set(together ${PROJECT_BINARY_DIR}/generated/cuda_${group}.cu)
        list(TRANSFORM together_${group} REPLACE ".+" "#include \"backend/cuda/\\0.cu\"\n" OUTPUT_VARIABLE includes)
        list(JOIN includes "" includes)
        file(CONFIGURE OUTPUT ${together} CONTENT "${includes}" @ONLY)
        list(TRANSFORM together_${group} REPLACE ".+" "${PROJECT_SOURCE_DIR}/src/backend/cuda/\\0.cu")
        list(REMOVE_ITEM sluice_cuda_sources ${together_${group}})
        list(APPEND sluice_cuda_sources ${together})
    endforeach()

    # Four warps that multiply together are an instruction of sm_90a, whose machine code runs on sm_90.
    set(sluice_together_source ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels/step_wide.cu)
    list(REMOVE_ITEM sluice_cuda_sources ${sluice_together_source})

    include(SluiceEmbed)
    add_library(sluice_cuda_together OBJECT ${sluice_together_source})
    add_library(sluice_cuda MODULE ${sluice_cuda_sources} $<TARGET_OBJECTS:sluice_cuda_together> ${sluice_layout_sources} ${sluice_embedded_source})
    target_include_directories(sluice_cuda PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_include_directories(sluice_cuda_together PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_compile_definitions(sluice_cuda_together PRIVATE _GNU_SOURCE)
    target_include_directories(sluice_cuda SYSTEM PRIVATE
                               "$<$<COMPILE_LANGUAGE:CXX>:${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}>")
    target_compile_definitions(sluice_cuda PRIVATE _GNU_SOURCE
                               "SLI_CUDA_BUILD=\"nvcc ${nvcc_version}:${architecture_names}\"")
    set(cuda_warnings -Xcompiler=-Wall,-Wextra)
    if(SLUICE_WERROR)
        list(APPEND cuda_warnings --Werror=all-warnings -Xcompiler=-Werror)
    endif()
    target_compile_options(sluice_cuda PRIVATE
                           "$<$<COMPILE_LANGUAGE:CUDA>:${machine_code};${cuda_warnings}>"
                           "$<$<COMPILE_LANGUAGE:C>:-ffp-contract=off>" # predictions as libsluice's, to the bit
                           "$<$<COMPILE_LANGUAGE:C,CXX>:${sluice_warnings}>")
    target_compile_options(sluice_cuda_together PRIVATE --generate-code=arch=compute_90a,code=sm_90a ${cuda_warnings} -lineinfo)
    # Lines for profilers, but for built-in instances, whose code they would make three times as large.
    set(sluice_lined_sources ${sluice_cuda_sources})
    list(FILTER sluice_lined_sources EXCLUDE REGEX "/persist_builtin")
    list(REMOVE_ITEM sluice_lined_sources ${sluice_cuda_host_sources})
    set_source_files_properties(${sluice_lined_sources} PROPERTIES COMPILE_OPTIONS -lineinfo)
    target_link_libraries(sluice_cuda PRIVATE Threads::Threads ${CMAKE_DL_LIBS} rt m)
    target_link_options(sluice_cuda PRIVATE ${sluice_plugin_link} -static-libstdc++ -static-libgcc)
    set_target_properties(sluice_cuda_together PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
                          CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/tools/nvcc_resources CUDA_ARCHITECTURES OFF
                          CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
    set_target_properties(sluice_cuda PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
                          CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden
                          CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/tools/nvcc_resources
                          CUDA_ARCHITECTURES OFF CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden
                          C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON LINKER_LANGUAGE CUDA
                          LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    list(APPEND sluice_plugins sluice_cuda)
endif()

# ----------------------------------------------------------------------------------------------- libsluice_cudnn.so --
file(GLOB sluice_cudnn_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cudnn/plugin/*.c)
if(NOT TARGET sluice_cuda)
    if(SLUICE_CUDNN_wanted STREQUAL "ON")
        message(FATAL_ERROR "SLUICE_CUDNN=ON needs the CUDA plug-in, which is not built here")
    endif()
    set(SLUICE_CUDNN_wanted OFF)
endif()
if(NOT SLUICE_CUDNN_wanted STREQUAL "OFF")
    get_filename_component(cuda_folder ${CMAKE_CUDA_COMPILER} REALPATH)
    get_filename_component(cuda_folder ${cuda_folder}/../.. ABSOLUTE)
    file(GLOB cudnn_folders $ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/cudnn/include
         $ENV{CONDA_PREFIX}/lib/python3*/site-packages/nvidia/cudnn/include)
    find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS $ENV{CUDNN_PATH}/include ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}
              ${cuda_folder}/include PATHS ${cudnn_folders})
    set(cudnn_major "")
    if(CUDNN_INCLUDE_DIR AND EXISTS ${CUDNN_INCLUDE_DIR}/cudnn_version.h)
        file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h cudnn_major REGEX "^#define CUDNN_MAJOR ")
        string(REGEX REPLACE "[^0-9]" "" cudnn_major "${cudnn_major}")
    endif()
    set(lost "libsluice_cudnn.so is not built, there will be no cuDNN kernels")
    if(NOT CUDNN_INCLUDE_DIR)
        sluice_without(SLUICE_CUDNN "cudnn.h was not found" "${lost}")
    elseif(NOT cudnn_major EQUAL 9)
        sluice_without(SLUICE_CUDNN "${CUDNN_INCLUDE_DIR}/cudnn.h is of cuDNN '${cudnn_major}', 9 is needed" "${lost}")
    else()
        message(STATUS "cuDNN: headers in ${CUDNN_INCLUDE_DIR}; the library is looked for when Sluice runs")
        add_library(sluice_cudnn MODULE ${sluice_cudnn_sources})
        target_include_directories(sluice_cudnn PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
        target_include_directories(sluice_cudnn SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}
                                   ${cuda_folder}/include ${CUDNN_INCLUDE_DIR})
        target_link_libraries(sluice_cudnn PRIVATE sluice_flags Threads::Threads m ${CMAKE_DL_LIBS})
        target_link_options(sluice_cudnn PRIVATE ${sluice_plugin_link})
        set_target_properties(sluice_cudnn PROPERTIES C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON
                              LINKER_LANGUAGE C LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
        list(APPEND sluice_plugins sluice_cudnn)
    endif()
endif()
