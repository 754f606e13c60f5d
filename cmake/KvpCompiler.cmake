# Language level, warnings and sanitizers of every target in the tree.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

# Linux only: memfd, pidfd, OFD locks.
add_compile_definitions(_GNU_SOURCE)
add_compile_options(
  -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
  -Wcast-qual -Wformat=2 -Wconversion -Wno-sign-conversion)
# GCC 12.2 at -O2 takes a function for pure that stores through pointers computed from a structure's fields, when its loop's induction
# variables were rewritten, and drops calls of it: cmake/dropped_call.c prints 0 where the C standard says 7. Without these two passes
# it can't. Newer versions are not known to be free of it.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_GREATER_EQUAL 11)
  add_compile_options(-fno-ipa-pure-const -fno-ipa-modref)
endif()
if(KVP_WERROR)
  add_compile_options(-Werror)
endif()
if(KVP_SANITIZE)
  add_compile_options(-fsanitize=${KVP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${KVP_SANITIZE})
endif()
