// Text files of procfs, and the fields of a status file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stackd {

// At most 1 MiB; empty if it cannot be read.
std::string ReadProcfsText(const std::string& path);

// What stands behind "NAME:" up to the end of the line, without blanks before it; empty: there is no such line.
std::string_view FieldOfStatus(std::string_view status, std::string_view name);

// -1: not known.
struct Uids {
  int64_t real = -1, effective = -1, saved = -1;
};
Uids UidsIn(std::string_view status);

// A hexadecimal mask, as of capabilities; 0 if there is none.
uint64_t MaskIn(std::string_view status, std::string_view name);
// 0 if there is none.
int64_t NumberIn(std::string_view status, std::string_view name);

}  // namespace stackd
