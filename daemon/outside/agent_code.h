// The agent's own code, set on another process: it makes the records of threads. So stack copies, the pointer filter and
// what runtimes know are as if the process had an agent. Records go through a ring of this program and ring/ like any
// other.
#pragma once

#include <sys/user.h>

#include <cstdint>
#include <memory>

#include "daemon/base/result.h"
#include "daemon/ring/recording.h"
#include "daemon/ring/ring.h"
#include "daemon/ring/ring_reader.h"

extern "C" {
#include "agent/capture/capture.h"
}

namespace stackd {

// A program has one of these at a time, and sets it on one process: the agent's code keeps what it knows in static
// variables.
class AgentCode {
 public:
  // The number that its records have.
  static constexpr uint32_t kSeq = 1;

  // Looks at what is mapped, and for runtimes. Memory is read as stackd_read_memory() was told; `maps_fd` has the text of
  // /proc/PID/maps.
  static Result<std::unique_ptr<AgentCode>> SetOn(int32_t pid, int maps_fd, uint32_t max_stack_bytes);

  // A thread without its name and its registers.
  stackd_capture Begin(int32_t tid) const;
  // Fills in what a thread that stands still has in its registers.
  static void FillRegisters(const user_regs_struct& registers, stackd_capture* capture);
  // Fills in the call that the thread is in, by its registers.
  static void FillCall(const user_regs_struct& registers, stackd_capture* capture);
  // Puts what was written into `recording`. To be called before the next record: the ring has room for one with all that it
  // may have.
  void Take(Recording* recording);

 private:
  explicit AgentCode(std::unique_ptr<Ring> ring) : ring_(std::move(ring)), reader_(ring_.get()) {}

  const std::unique_ptr<Ring> ring_;
  RingReader reader_;
  stackd_ring writers_{};  // the same ring as its writers see it
  int32_t pid_ = 0;
  uint32_t max_stack_bytes_ = 0;
};

}  // namespace stackd
