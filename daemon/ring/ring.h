// The memory shared with one agent (agent/include/stackd/ring_abi.h), as the daemon owns it.
#pragma once

#include <cstdint>
#include <memory>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "stackd/ring_abi.h"

namespace stackd {

class Ring {
 public:
  // Creates, seals, touches and initializes it. `size_bytes` is cut to whole slots; kInvalidArgument if it is below 64 KiB
  // or above what the ABI can address.
  static Result<std::unique_ptr<Ring>> Create(uint32_t size_bytes);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // The fd to pass to the agent.
  int fd() const { return fd_.get(); }
  uint32_t size_bytes() const { return size_bytes_; }
  uint32_t slot_count() const { return slot_count_; }

  // Shared with the process, which may write anything there at any time.
  stackd_ring_header* header() const { return static_cast<stackd_ring_header*>(memory_); }
  const stackd_heartbeat_cell& heartbeat(uint32_t index) const {
    const char* cells = static_cast<const char*>(memory_) + STACKD_HEARTBEATS_OFFSET;
    return reinterpret_cast<const stackd_heartbeat_cell*>(cells)[index];
  }
  // What the process says: at most slot_count().
  uint32_t UsedSlots() const;
  const void* slot(uint32_t index) const {
    return static_cast<const char*>(memory_) + STACKD_HEADER_BYTES + uint64_t{index} * STACKD_SLOT_BYTES;
  }

 private:
  Ring() = default;

  Fd fd_;
  void* memory_ = nullptr;
  uint32_t size_bytes_ = 0;
  uint32_t slot_count_ = 0;
};

}  // namespace stackd
