# kvp_add_test(<kind>.<area> SOURCES a.c ... [LIBS target ...] [ARGS arg ...] [TIMEOUT seconds] [LABELS l ...])
# One binary, one ctest entry; exit code 77 means skipped and is counted as such.
function(kvp_add_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LIBS;ARGS;LABELS" ${ARGN})
  string(REPLACE "." "_" target "test_${name}")
  add_executable(${target} ${T_SOURCES})
  target_link_libraries(${target} PRIVATE kvp_test_support ${T_LIBS})
  kvp_register_test(${name} COMMAND ${target} ${T_ARGS} TIMEOUT ${T_TIMEOUT} LABELS ${T_LABELS})
endfunction()

# Kinds that use all processors, or whose waits are short of a machine's time: each of them runs alone.
set(KVP_SERIAL_KINDS conform crash fakecuda hostile)

# Long ones whose processes have one thread each: ThreadSanitizer, which can find nothing there, leaves them out (scripts/test).
set(KVP_ONE_THREAD_TESTS wire.golden golden.kernels golden.kernels_exit_codes golden.host_prep_exit_codes prop.books
  prop.check_slices unit.engine_duplicate unit.engine_random unit.trace_generate)

# kvp_register_test(<kind>.<area> COMMAND ... [TIMEOUT seconds] [LABELS l ...]): an entry without a binary of its own.
function(kvp_register_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  string(REGEX REPLACE "\\..*" "" kind ${name})
  add_test(NAME ${name} COMMAND ${T_COMMAND})
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${T_TIMEOUT} SKIP_RETURN_CODE 77 LABELS "${kind};${T_LABELS}")
  if(name IN_LIST KVP_ONE_THREAD_TESTS)
    set_property(TEST ${name} APPEND PROPERTY LABELS one-thread)
  endif()
  if(kind IN_LIST KVP_SERIAL_KINDS)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()
