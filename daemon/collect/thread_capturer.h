// Captures the threads of one process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/base/result.h"
#include "daemon/capture/capture.h"
#include "daemon/collect/agent_parts.h"
#include "daemon/collect/capture_request.h"
#include "daemon/ring/recording.h"

namespace stackd {

// The threads that serve requests use it.
class ThreadCapturer {
 public:
  explicit ThreadCapturer(AgentParts* parts) : parts_(parts), process_(&parts->process) {}

  // One call at a time has the turn, the next waits. See Collector::CaptureProcess.
  Result<std::shared_ptr<Capture>> CaptureThreads(CaptureRequest request);
  // See Collector::Outline.
  Result<std::shared_ptr<Capture>> Outline() const;

  // With the turn: the steps of a capture, for the crash capturer too.
  // Runs a dump of the threads into `recording`, and puts all but the stacks into `capture`. `in_a_hurry`, if there is
  // one, tells when to give up.
  void RunDump(const CaptureRequest& request, const std::function<bool()>& in_a_hurry, Recording* recording,
               Capture* capture);
  // Adds the threads of `recording`, what is mapped, and the description of the process.
  void Finish(Recording* recording, Capture* capture);

 private:
  // Wakes the agent, and loads the modules unless they are known.
  void Prepare(int64_t deadline_ns, Capture* capture);
  // Loads what was mapped while the threads answered. Asks a process that `answers` again for files that have not come.
  void LoadModulesAgain(int64_t deadline_ns, bool answers);
  // Reads the ring until the dump is over, for whatever reason.
  void Record(const CaptureRequest& request, const std::function<bool()>& in_a_hurry, Recording* recording);
  // Gives a status to each thread that is known and has no record. How many are not known is noted.
  void AccountForTheRest(const CaptureRequest& request, Recording* recording, Capture* capture);
  void SetStatus(ThreadCapture* thread) const;
  void AddTasks(int64_t deadline_ns, Capture* capture);
  // Waits for memory that the process has passed while it was dumped.
  void AwaitMemory() const;

  AgentParts* const parts_;
  AgentProcess* const process_;
};

// An id for a crash that has none of its agent's.
decltype(CrashCapture::id) NewCrashId(int64_t wall_ns);

}  // namespace stackd
