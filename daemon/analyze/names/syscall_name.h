// Names of the x86-64 system calls.
#pragma once

#include <cstdint>
#include <string_view>

namespace stackd {

// "futex" for 202; empty for a number that names no system call here.
std::string_view SyscallName(uint32_t number);

bool IsSyscall(std::string_view name);

}  // namespace stackd
