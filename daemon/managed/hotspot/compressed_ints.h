// HotSpot's "UNSIGNED5" (compressedStream.hpp; from release 20 on, unsigned5.hpp). An int takes one to five bytes, low bits
// first, six bits in each byte that another follows. Release 20 left out the byte 0.
#pragma once

#include <cstdint>

#include "daemon/managed/hotspot/process_memory.h"

namespace stackd::hotspot {

class CompressedInts {
 public:
  // A read that fails gives 0, and ok() is false from then on.
  CompressedInts(ProcessMemory* memory, uint64_t avma, int32_t release)
      : memory_(memory), avma_(avma), excluded_(release >= 20 ? 1 : 0) {}

  bool ok() const { return ok_; }

  uint8_t Byte() {
    const auto byte = memory_->Value<uint8_t>(avma_++);
    if (!byte) ok_ = false;
    return byte.value_or(0);
  }
  uint32_t Unsigned() {
    constexpr uint32_t kFirstThatGoesOn = 192;
    uint32_t sum = 0;
    for (int i = 0; i < 5; ++i) {
      const uint32_t byte = Byte();
      if (byte < excluded_) ok_ = false;
      sum += (byte - excluded_) << (6 * i);
      if (byte < kFirstThatGoesOn) break;
    }
    return sum;
  }
  int32_t Signed() {
    const uint32_t value = Unsigned();
    return static_cast<int32_t>((value >> 1) ^ (0 - (value & 1)));
  }

 private:
  ProcessMemory* memory_;
  uint64_t avma_;
  uint32_t excluded_;
  bool ok_ = true;
};

}  // namespace stackd::hotspot
