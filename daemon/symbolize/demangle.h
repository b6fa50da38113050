// C++ and Rust names as a person writes them.
#pragma once

#include <string>
#include <string_view>

#include "daemon/capture/language.h"

namespace stackd {

// Symbol tables and DWARF differ in gdb's manner, and ours follows it: `int sum<int>(int)` for a name from a symbol table,
// `sum<int>(int)` for one from DWARF.
enum class ReturnType { kKeep, kDrop };

inline constexpr size_t kMaxMangledBytes = 4096;
inline constexpr size_t kMaxNameBytes = 16384;

// Told by the way a name is mangled; kUnknown for one that is not: C, assembly, Go, or the linker's own.
Language LanguageOfName(std::string_view mangled);

// The name as it is if it is not mangled, or longer than kMaxMangledBytes. A result is cut at kMaxNameBytes: a mangled name
// of 100 bytes can stand for gigabytes.
std::string Demangle(std::string_view mangled, ReturnType return_type);

}  // namespace stackd
