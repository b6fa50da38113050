// Takes the crash of one process out of its ring, and captures it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/collect/agent_parts.h"
#include "daemon/collect/thread_capturer.h"
#include "daemon/crashes/spool_intake.h"

namespace stackd {

// The threads of CrashIntake use it, and that of ModulePrefetcher.
class CrashCapturer {
 public:
  // All must outlive it; `spool_file` may be nullptr.
  CrashCapturer(AgentParts* parts, ThreadCapturer* capturer, const HeldSpoolFile* spool_file)
      : parts_(parts), process_(&parts->process), capturer_(capturer), spool_file_(spool_file) {}

  // Loads the modules that are mapped now, if they are not known, so that they are when the process has ended.
  void PrefetchModules();
  // Takes the records that lie in the ring. After the end of the connection it takes those as well that the process did
  // not take back. True once in its life: when there is a crash, which the caller is to capture.
  bool TakeCrash();
  // After TakeCrash gave true: loads the modules that are mapped, if they are not known. False: the process is still there
  // and has not answered by the deadline, so the caller is to try again while it is held. Else the crash may have other
  // names than its like.
  bool LoadModulesOfCrash(int64_t deadline_ns);
  // Once, after that. Asks the other threads if the process is still there and `in_a_hurry` is false.
  // nullptr: the process has ended, what it had mapped is not known, and its file says all: that is to be taken in.
  std::shared_ptr<Capture> CaptureCrash(int64_t deadline_ns, const std::function<bool()>& in_a_hurry);
  // The crash is on disk: lets the process die.
  void ReleaseCrash() { parts_->crash.Release(); }

 private:
  std::shared_ptr<Capture> CaptureReport(RuntimeReport report);

  AgentParts* const parts_;
  AgentProcess* const process_;
  ThreadCapturer* const capturer_;
  const HeldSpoolFile* const spool_file_;
};

}  // namespace stackd
