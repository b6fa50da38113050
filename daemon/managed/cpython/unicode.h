// Strings of CPython as UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stackd {

// `kind` as in the agent's tables: 0 ASCII, else 1, 2 or 4 bytes a character. A character that cannot be written (a byte of
// a file's name that was no UTF-8 stands there as half a surrogate pair) becomes "?".
std::string DecodeUnicode(std::string_view characters, uint32_t kind);

}  // namespace stackd
