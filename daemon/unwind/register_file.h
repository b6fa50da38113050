// The registers of one frame, as far as they are known.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/capture/registers.h"

namespace stackd {

struct RegisterFile {
  Registers registers;
  uint32_t known = 0;  // bit N: registers.value[N] is valid

  std::optional<uint64_t> Get(uint64_t number) const {
    if (number >= registers.value.size() || (known >> number & 1) == 0) return std::nullopt;
    return registers.value[number];
  }
  void Set(uint64_t number, uint64_t value) {
    registers.value[number] = value;
    known |= 1u << number;
  }
  void Forget(uint64_t number) { known &= ~(1u << number); }
};

}  // namespace stackd
