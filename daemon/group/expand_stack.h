// A stack of program counters and their source locations becomes the stack that people read: each inlined call is a frame.
#pragma once

#include <string>

#include "daemon/group/assemble.h"
#include "daemon/module/address_map.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// "0x7f12": addresses as the API writes them.
std::string Hex(uint64_t value);

// "libc.so.6" for "/usr/lib/libc.so.6 (deleted)"; "[vdso]" as it stands; "[anon]" for no mapping or one without a name.
std::string ModuleName(const Mapping* mapping);

// Inlined frames come before the function that they are inlined into, as debuggers number them.
v1::Stack ExpandStack(const NamedStack& stack, const AddressMap& map);

}  // namespace stackd
