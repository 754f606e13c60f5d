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
# GCC 12 drops calls that it must not: where induction variables were rewritten, stores through a pointer that was loaded from a
# structure look local, the function is taken for pure and its calls for dead (12.2, -O2: a loop over three tables of one
# mapping). The two passes that conclude so are off.
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
