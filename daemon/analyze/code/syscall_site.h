// Whether an interrupted thread was inside a system call, and which: read from the code around its program counter.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "daemon/modules/address_map.h"

namespace stackd {

struct SyscallSite {
  bool in_syscall = false;
  // The number that the code loads right before the call; unset where it comes from elsewhere (syscall(2), Go).
  std::optional<uint32_t> number;
};

// Bytes of code before and after the program counter that DecodeSyscallSite looks at.
inline constexpr size_t kSyscallSiteBytesBefore = 32;
inline constexpr size_t kSyscallSiteBytesAfter = 2;

// `code` holds kSyscallSiteBytesBefore bytes up to the program counter, then kSyscallSiteBytesAfter.
//
// A signal finds a blocked thread with its program counter right after the `syscall` instruction. Where the kernel will
// restart the call, the program counter is right at it.
SyscallSite DecodeSyscallSite(std::span<const uint8_t> code);

// Does the same at `pc_avma`; nullopt if the code cannot be read.
std::optional<SyscallSite> ReadSyscallSite(const AddressMap& map, uint64_t pc_avma);

}  // namespace stackd
