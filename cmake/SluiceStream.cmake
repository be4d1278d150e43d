# libsluice_stream.a: models step by step (sluice_stream.h), and nothing else. The same objects are in libsluice.
set(sluice_stream_objects "")
set(sluice_stream_flags "") # small: lines for debuggers are most of it
if(CMAKE_BUILD_TYPE STREQUAL "Release")
    set(sluice_stream_flags -g0)
endif()
set(sluice_isa_flags_avx512_half ${sluice_isa_flags_avx512} -DSLI_VECTOR_HALF) # for layers of up to eight units
foreach(isa base neon avx2 avx512 avx512_half)
    string(REPLACE "_half" "" name ${isa})
    if(NOT name IN_LIST sluice_isas)
        continue()
    endif()
    sluice_objects(sluice_stream_${isa} ${PROJECT_SOURCE_DIR}/src/stream/isa/step.c)
    target_compile_definitions(sluice_stream_${isa} PRIVATE SLI_ISA_SUFFIX=${isa} SLI_ISA_NAME=${name})
    # Products may be contracted here: what is computed one step at a time is compared within rounding, not to the bit.
    target_compile_options(sluice_stream_${isa} PRIVATE -fno-math-errno -fno-trapping-math -ffp-contract=fast
                           ${sluice_isa_flags_${isa}} ${sluice_isa_optimise} ${sluice_stream_flags})
    sluice_less_instrumented(sluice_stream_${isa} ${isa})
    list(APPEND sluice_stream_objects $<TARGET_OBJECTS:sluice_stream_${isa}>)
endforeach()
foreach(library sluice sluice_static)
    target_sources(${library} PRIVATE ${sluice_stream_objects})
endforeach()

sluice_objects(sluice_stream_portable ${PROJECT_SOURCE_DIR}/src/stream/model.c ${PROJECT_SOURCE_DIR}/src/stream/slm.c
               ${PROJECT_SOURCE_DIR}/src/stream/stream.c ${PROJECT_SOURCE_DIR}/src/core/status.c)
# A program that calls one function takes no other.
target_compile_options(sluice_stream_portable PRIVATE -ffunction-sections -fdata-sections ${sluice_stream_flags})
add_library(sluice_stream STATIC $<TARGET_OBJECTS:sluice_stream_portable> ${sluice_stream_objects})
target_include_directories(sluice_stream PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_options(sluice_stream INTERFACE ${sluice_instrument})
set_target_properties(sluice_stream PROPERTIES LINKER_LANGUAGE C ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
add_library(Sluice::sluice_stream ALIAS sluice_stream)
