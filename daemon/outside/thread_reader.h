// Reads the threads of another process into records, by the agent's own code.
//
// A thread that sleeps is read where it sleeps, and looked at again afterwards. One that runs is stopped, alone, for
// some microseconds.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/capture/waits.h"
#include "daemon/outside/agent_code.h"
#include "daemon/outside/live_process.h"
#include "daemon/ring/recording.h"

struct stackd_quiet_look;

namespace stackd {

// A program has one reader, as of AgentCode.
class ThreadReader {
 public:
  // Looks at what is mapped, and for runtimes. `process` must outlive it.
  static Result<std::unique_ptr<ThreadReader>> Start(const LiveProcess& process, uint32_t max_stack_bytes);
  ~ThreadReader();

  // Puts every thread into `recording`, with its stack or the reason why it has none. `may_stop`: threads that run are
  // stopped, one after the other.
  void ReadAll(bool may_stop, int64_t deadline_ns, Recording* recording);
  // What was in the way, one sentence each.
  void AddNotes(std::vector<std::string>* notes) const;

  // What threads sleep in now.
  std::vector<ThreadWait> SampleWaits(int64_t deadline_ns) const;

 private:
  enum class Sight { kRead, kRuns, kEnded, kNoRoom };

  ThreadReader(const LiveProcess& process, std::unique_ptr<AgentCode> agent);

  stackd_capture Begin(int32_t tid) const;
  // 0; -EAGAIN if the thread ran meanwhile; -ENOSPC.
  int WriteAsleep(const stackd_quiet_look& look) const;
  int WriteStopped(int32_t tid, const user_regs_struct& registers, int64_t since_ns) const;
  Sight ReadAsleep(int32_t tid, int tries, Recording* recording);
  void ReadRunning(std::span<const int32_t> tids, int64_t deadline_ns, Recording* recording);
  void ReadStopped(int32_t tid, int64_t deadline_ns, Recording* recording);
  // Says in which state a thread is that has a stack, where that is more than sleep.
  void AddState(int32_t tid, Recording* recording) const;
  // Says why a thread has no stack.
  void AddReason(int32_t tid, ThreadStatus reason, Recording* recording) const;

  const LiveProcess& process_;
  const std::unique_ptr<AgentCode> agent_;
  // The process is stopped or traced, or a part of it.
  bool looks_at_states_ = false;
  int64_t refused_ = 0, too_long_ = 0;
};

}  // namespace stackd
