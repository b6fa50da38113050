# find_package(stackd) gives two targets, of which a program links one:
#
#   stackd::agent         libstackd_agent.so: is installed when it is loaded
#   stackd::agent_static  libstackd_agent.a: the program calls stackd_install()
include(CMakeFindDependencyMacro)
find_dependency(Threads)

get_filename_component(_stackd_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET stackd::agent)
  add_library(stackd::agent SHARED IMPORTED)
  set_target_properties(stackd::agent PROPERTIES
    IMPORTED_LOCATION "${_stackd_prefix}/lib/libstackd_agent.so"
    IMPORTED_SONAME libstackd_agent.so
    INTERFACE_INCLUDE_DIRECTORIES "${_stackd_prefix}/include")
endif()

if(NOT TARGET stackd::agent_static)
  add_library(stackd::agent_static STATIC IMPORTED)
  set_target_properties(stackd::agent_static PROPERTIES
    IMPORTED_LOCATION "${_stackd_prefix}/lib/libstackd_agent.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_stackd_prefix}/include"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()

unset(_stackd_prefix)
