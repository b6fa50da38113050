// What a function is called, from its DIE.
#pragma once

#include <elfutils/libdw.h>

#include <string>
#include <string_view>

namespace stackd {

// The DIE that a concrete or inlined function is an instance of; the DIE itself if it is none. Equal for all instances.
Dwarf_Die OriginOf(Dwarf_Die die);

// Name for the linker, mangled; empty if the function has none (C, lambdas, functions of anonymous namespaces).
std::string_view LinkageName(Dwarf_Die* die);

// "ns::(anonymous namespace)::K::m", built from the DIEs around the declaration.
std::string QualifiedName(Dwarf_Die* die);

}  // namespace stackd
