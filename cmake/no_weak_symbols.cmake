# Fails if one of the object files in OBJECTS defines a symbol that the linker may merge with others
# (weak or unique: W, V and u in the listing of NM).
if(NOT OBJECTS)
  message(FATAL_ERROR "OBJECTS is empty")
endif()
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} -C ${object} OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
  # This symbol is a pointer to the runtime's exception handler, not code.
  string(REGEX REPLACE "[^\n]* V DW[.]ref[.][^\n]*" "" listing "${listing}")
  string(REGEX MATCHALL "[^\n]* [WVu] [^\n]*" merged "${listing}")
  if(merged)
    message(FATAL_ERROR "${object} defines symbols that the linker may merge:\n${merged}")
  endif()
  if(NOT listing MATCHES "CompiledFor")
    message(FATAL_ERROR "${object} defines no table of kernels")
  endif()
endforeach()
