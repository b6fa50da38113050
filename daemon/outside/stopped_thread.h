// One thread of another process, stopped by ptrace for as long as this lives.
//
// The thread that stops another is its tracer, and when a tracer ends, for whatever reason, the kernel lets all its tracees
// run on. A signal that met the thread stays with it. No wait here takes the stop (WNOWAIT), so the kernel still has the
// signal when the tracer dies. When the tracer lets go, the signal is passed on.
#pragma once

#include <sys/user.h>

#include <cstdint>
#include <optional>

namespace stackd {

enum class StopOutcome {
  kStopped,
  kEnded,    // the thread has
  kTraced,   // by another process, or the kernel does not permit it
  kTooLong,  // it did not stop by the deadline, and stays traced until the calling thread ends
};

class StoppedThread {
 public:
  // To be called, and ended, on one thread, which ends soon.
  StoppedThread(int32_t tid, int64_t deadline_ns);
  ~StoppedThread();
  StoppedThread(const StoppedThread&) = delete;
  StoppedThread& operator=(const StoppedThread&) = delete;

  StopOutcome outcome() const { return outcome_; }
  // If it is stopped: as the kernel has them; nullopt where it has none, as of a 32-bit thread.
  std::optional<user_regs_struct> ReadRegisters() const;

 private:
  StopOutcome Await(int64_t deadline_ns);

  const int32_t tid_;
  int signal_number_ = 0;  // that waits to be delivered
  StopOutcome outcome_;
};

}  // namespace stackd
