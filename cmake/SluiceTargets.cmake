# The library, static and shared from the same objects, and the command.
set(sluice_warnings -Wall -Wextra -Wpedantic)
if(SLUICE_WERROR)
    list(APPEND sluice_warnings -Werror)
endif()
set(sluice_instrument "")
if(SLUICE_SANITIZE)
    list(APPEND sluice_instrument -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
endif()
if(SLUICE_SANITIZE MATCHES "address.*undefined")
    # Who uses a wrong pointer is seen by what watches addresses; these checks are a quarter of the compiler's time.
    list(APPEND sluice_instrument -fno-sanitize=pointer-overflow,null,object-size)
endif()
if(SLUICE_SANITIZE STREQUAL "thread" AND CMAKE_C_COMPILER_ID MATCHES "Clang")
    list(APPEND sluice_instrument -D__SANITIZE_THREAD__=1) # as gcc says it
endif()
if(SLUICE_SANITIZE AND CMAKE_C_COMPILER_ID MATCHES "Clang")
    list(APPEND sluice_warnings -Wno-pass-failed) # loops of what is not inlined there are not unrolled
endif()
if(SLUICE_COVERAGE)
    list(APPEND sluice_instrument --coverage) # counts of threads at once may be lost, but not whether a line ran
endif()
if(SLUICE_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "SLUICE_FUZZ=ON needs clang: configure with -DCMAKE_C_COMPILER=clang-14")
    endif()
    list(APPEND sluice_instrument -fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer
         -fno-sanitize-recover=all)
endif()

# Flags of everything in this tree.
add_library(sluice_flags INTERFACE)
target_compile_features(sluice_flags INTERFACE c_std_11)
target_compile_definitions(sluice_flags INTERFACE _GNU_SOURCE)
target_compile_options(sluice_flags INTERFACE ${sluice_warnings} ${sluice_instrument}
                       "$<TARGET_PROPERTY:SLUICE_LESS_INSTRUMENTED>")
target_link_options(sluice_flags INTERFACE ${sluice_instrument})
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)

function(sluice_objects target)
    add_library(${target} OBJECT ${ARGN})
    target_link_libraries(${target} PRIVATE sluice_flags Threads::Threads)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
endfunction()

# Sanitizers: a source that is compiled for several instruction sets is searched for undefined behaviour once, in base. What this
# machine has no processor for, and so never runs, is searched for nothing.
set(sluice_runs_avx512 FALSE)
if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo sluice_runs_avx512 REGEX "^flags.* avx512f" LIMIT_COUNT 1)
endif()
function(sluice_less_instrumented target isa)
    if(NOT SLUICE_SANITIZE)
        return()
    endif()
    if(isa MATCHES "avx512" AND NOT sluice_runs_avx512)
        set_target_properties(${target} PROPERTIES SLUICE_LESS_INSTRUMENTED "-fno-sanitize=all;-O0")
    elseif(NOT isa STREQUAL "base")
        set_target_properties(${target} PROPERTIES SLUICE_LESS_INSTRUMENTED "-fno-sanitize=undefined")
    endif()
endfunction()

file(GLOB_RECURSE sluice_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.c)
file(GLOB sluice_isa_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cpu/isa/*.c)
list(REMOVE_ITEM sluice_sources ${sluice_isa_sources})
list(FILTER sluice_sources EXCLUDE REGEX "/backend/cudnn/plugin/") # a plug-in of its own: SluiceCuda.cmake
list(FILTER sluice_sources EXCLUDE REGEX "/stream/isa/") # once per instruction set: SluiceStream.cmake

# Products are not contracted into fused multiply-adds behind our back: all compilers give the same numbers.
sluice_objects(sluice_portable ${sluice_sources})
target_include_directories(sluice_portable PRIVATE ${JANSSON_INCLUDE_DIR})
# As seen from the command, so that the installed folder can be moved.
file(RELATIVE_PATH sluice_libdir ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
target_compile_definitions(sluice_portable PRIVATE SLI_BLAS=${sluice_blas_number} SLI_LIBDIR="${sluice_libdir}")
target_compile_options(sluice_portable PRIVATE -ffp-contract=off)

# The reference takes most of the time of tests: loops over k into vectors, which changes no sum.
file(GLOB sluice_reference_sources ${PROJECT_SOURCE_DIR}/src/backend/ref/*.c)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
    set_source_files_properties(${sluice_reference_sources} PROPERTIES COMPILE_OPTIONS -O3)
elseif(SLUICE_SANITIZE)
    set_source_files_properties(${sluice_reference_sources} PROPERTIES COMPILE_OPTIONS -fno-sanitize=alignment)
endif()

if(SLUICE_FOR_TESTS) # a third of the compiler's time
    set(sluice_computes_little ${sluice_sources})
    list(FILTER sluice_computes_little INCLUDE REGEX "/src/(api|core|data|io|layer|train|tune)/|/src/stream/(convert|emit)")
    set_source_files_properties(${sluice_computes_little} PROPERTIES COMPILE_OPTIONS -O0)
endif()

# One source, one object per instruction set. The flags let compilers vectorise our own tanh and exp, and change no sum.
set(sluice_isas base)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    list(APPEND sluice_isas avx2 avx512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
    list(APPEND sluice_isas neon) # and base in portable C, as on any other processor
endif()
set(sluice_isa_flags_base "")
set(sluice_isa_flags_neon -DSLI_VECTOR_NEON)
set(sluice_isa_flags_avx2 -mavx2 -mfma)
set(sluice_isa_flags_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma)
set(sluice_isa_optimise -O3)
if(SLUICE_SANITIZE)
    set(sluice_isa_optimise -Og) # half the compiler's time of -O1, and nearly as fast with what sanitizers add
elseif(SLUICE_FUZZ OR CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(sluice_isa_optimise "")
endif()
# Polynomials of the cells: twice as many instructions without contraction. No sum over k or rows is in this file.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/backend/cpu/isa/fused_cells.c PROPERTIES COMPILE_OPTIONS
                            -ffp-contract=fast)
set(sluice_isa_objects "")
foreach(isa IN LISTS sluice_isas)
    sluice_objects(sluice_isa_${isa} ${sluice_isa_sources})
    target_compile_definitions(sluice_isa_${isa} PRIVATE SLI_ISA_SUFFIX=${isa})
    target_compile_options(sluice_isa_${isa} PRIVATE -fno-math-errno -fno-trapping-math ${sluice_isa_flags_${isa}}
                           ${sluice_isa_optimise})
    sluice_less_instrumented(sluice_isa_${isa} ${isa})
    list(APPEND sluice_isa_objects $<TARGET_OBJECTS:sluice_isa_${isa}>)
endforeach()

# Loops more for features that processors have beside their instruction set: VNNI, AVX512_BF16.
if("avx512" IN_LIST sluice_isas)
    set(sluice_isa_sources_avx512vnni panel_i8.c)
    set(sluice_isa_sources_avxvnni panel_i8.c)
    set(sluice_isa_sources_avx512bf16 panel_bf16.c product_dot.c)
    set(sluice_isa_flags_avx512bf16 ${sluice_isa_flags_avx512} -mavx512bf16)
    set(sluice_isa_flags_avx512vnni ${sluice_isa_flags_avx512} -mavx512vnni)
    set(sluice_isa_flags_avxvnni ${sluice_isa_flags_avx2} -mavxvnni)
    foreach(isa avx512vnni avxvnni avx512bf16)
        list(TRANSFORM sluice_isa_sources_${isa} PREPEND ${PROJECT_SOURCE_DIR}/src/backend/cpu/isa/)
        sluice_objects(sluice_isa_${isa} ${sluice_isa_sources_${isa}})
        target_compile_definitions(sluice_isa_${isa} PRIVATE SLI_ISA_SUFFIX=${isa})
        target_compile_options(sluice_isa_${isa} PRIVATE -fno-math-errno -fno-trapping-math
                               ${sluice_isa_flags_${isa}} ${sluice_isa_optimise})
        sluice_less_instrumented(sluice_isa_${isa} ${isa})
        list(APPEND sluice_isa_objects $<TARGET_OBJECTS:sluice_isa_${isa}>)
    endforeach()
endif()

function(sluice_library target type)
    add_library(${target} ${type} $<TARGET_OBJECTS:sluice_portable> ${sluice_isa_objects})
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(${target} PRIVATE jansson Threads::Threads m ${CMAKE_DL_LIBS})
    target_link_options(${target} PRIVATE ${sluice_instrument})
    # 0.2 may break what 0.1 promised (find_package says so too: SameMinorVersion), and both may be installed.
    set_target_properties(${target} PROPERTIES OUTPUT_NAME sluice VERSION ${PROJECT_VERSION}
                          SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINKER_LANGUAGE C
                          ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
endfunction()
get_filename_component(jansson_folder ${JANSSON_LIBRARY} DIRECTORY)
link_directories(${jansson_folder})
sluice_library(sluice_static STATIC)
sluice_library(sluice SHARED)
if(NOT SLUICE_SANITIZE AND NOT SLUICE_FUZZ)
    target_link_options(sluice PRIVATE -Wl,-z,defs)
endif()
add_library(Sluice::sluice ALIAS sluice)
add_library(Sluice::sluice_static ALIAS sluice_static)

# The command sees the public header and nothing else.
file(GLOB sluice_cli_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cli/*.c)
add_executable(sluice_command ${sluice_cli_sources})
target_link_libraries(sluice_command PRIVATE sluice_flags sluice_static ${sluice_jansson_of_programs})
set_target_properties(sluice_command PROPERTIES OUTPUT_NAME sluice RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
if(SLUICE_FOR_TESTS)
    target_compile_options(sluice_command PRIVATE -O0)
endif()
