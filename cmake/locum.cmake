# What every target of this project is built with, and the two helpers that make one.

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers
                    -fno-omit-frame-pointer)
if(LOCUM_SANITIZE)
  add_compile_options(-fsanitize=${LOCUM_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LOCUM_SANITIZE})
endif()
if(LOCUM_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)  # the fuzzers see which way the libraries' code went
  add_link_options(-fsanitize=fuzzer-no-link)
endif()

find_program(LOCUM_MOLD mold)
if(LOCUM_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
find_program(LOCUM_CCACHE ccache)
if(LOCUM_CCACHE)
  # Paths relative to the source tree, so that another checkout of the same sources finds what this one compiled;
  # the sloppiness is what precompiled headers need.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${LOCUM_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

# locum_layer(name): a static library of all sources of this folder but its tests.
function(locum_layer name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(sources)
    add_library(${name} STATIC ${sources})
    set(scope PUBLIC)
    target_compile_options(${name} PRIVATE -fvisibility=hidden)
  else()  # headers only
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${name} ${scope} ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  if(ARGN)
    target_link_libraries(${name} ${scope} ${ARGN})
  endif()
endfunction()

# Timings decide no test; the limit only ends one that hangs, also under a sanitizer on a busy machine.
# locum_tests(layer): one test program of all *_test.cc of this folder, its cases known to ctest one by one.
function(locum_tests layer)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
  if(sources)
    add_executable(${layer}_test ${sources})
    target_include_directories(${layer}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${layer}_test PRIVATE ${layer} ${ARGN} GTest::gmock GTest::gtest_main Threads::Threads)
    gtest_discover_tests(${layer}_test PROPERTIES TIMEOUT 300 DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
include(GoogleTest)
