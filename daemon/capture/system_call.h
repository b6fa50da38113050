// A system call that a thread is in.
#pragma once

#include <array>
#include <cstdint>

namespace stackd {

// With those of its arguments that left the process (agent/capture/syscall_arguments.h).
struct SystemCall {
  uint32_t number = 0;
  uint32_t known_arguments = 0;  // bit n: arguments[n] is known
  std::array<uint64_t, 6> arguments = {};

  bool knows(int argument) const { return (known_arguments >> argument & 1) != 0; }

  bool operator==(const SystemCall&) const = default;
};

}  // namespace stackd
