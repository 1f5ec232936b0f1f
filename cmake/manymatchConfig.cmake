# find_package(manymatch) defines the target manymatch::manymatch.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/manymatchTargets.cmake)
