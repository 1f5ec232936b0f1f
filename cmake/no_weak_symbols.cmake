# Fails if one of the object files in OBJECTS defines a symbol that the linker may merge with others
# (weak, or unique: W, V and u in the listing of NM).
if(NOT OBJECTS)
  message(FATAL_ERROR "there are no object files to look at")
endif()
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} -C ${object} OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
  # A pointer to the runtime's handler of exceptions, not code.
  string(REGEX REPLACE "[^\n]* V DW[.]ref[.][^\n]*" "" listing "${listing}")
  string(REGEX MATCHALL "[^\n]* [WVu] [^\n]*" merged "${listing}")
  if(merged)
    message(FATAL_ERROR "${object} defines what may be merged:\n${merged}")
  endif()
  if(NOT listing MATCHES "CompiledFor")
    message(FATAL_ERROR "${object} defines no table of kernels")
  endif()
endforeach()
