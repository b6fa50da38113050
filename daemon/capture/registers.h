// The registers of a thread, as its capture has them.
#pragma once

#include <array>
#include <cstdint>

namespace stackd {

// In the order of the x86-64 psABI's DWARF numbers: rax rdx rcx rbx rsi rdi rbp rsp r8..r15, rip.
struct Registers {
  static constexpr int kRbp = 6, kRsp = 7, kRip = 16;
  static constexpr uint32_t kAll = (1u << 17) - 1;
  std::array<uint64_t, 17> value{};
  // Bit N: value[N] is what the thread had. Of a thread that was read while it slept, procfs tells rip and rsp only.
  uint32_t known = kAll;
};

// The registers that are known of a thread which was read while it slept. Its rbp is 0 where it is not known.
inline uint32_t KnownAsleep(const Registers& registers) {
  const uint32_t always = 1u << Registers::kRsp | 1u << Registers::kRip;
  return registers.value[Registers::kRbp] != 0 ? always | 1u << Registers::kRbp : always;
}

}  // namespace stackd
