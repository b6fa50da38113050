// Which line of its file a place in a CPython function's code belongs to: the tables that code objects carry.
#pragma once

#include <cstdint>
#include <string_view>

namespace stackd {

// `version` is PY_VERSION_HEX >> 16; `position` counts bytes of code, before the first instruction it is negative. A place
// that has no line (code that the compiler made up) has `first_line`, and so has a table that makes no sense. 0 if that is
// no line.
int32_t LineOf(uint32_t version, uint32_t first_line, std::string_view table, int64_t position);

}  // namespace stackd
